"""The red team's result for people: who was credited, and what went wrong.

- `confusion` -- expectation against outcome, as a table.
- `each` -- every case with what the judge told of it.
- `failed` -- the cases in which the judge fell short, and why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from kernelgym_env.evaluation.result import Status
from kernelgym_env.limits import clip
from kernelgym_env.redteam.arena import Record
from kernelgym_env.redteam.cases import EXPECTS

__all__ = ["FEW", "confusion", "each", "failed"]

FEW = 12
"""Cases up to which each is shown."""

_SAID_CHARS = 200


def confusion(records: Sequence[Record]) -> Table:
    """A row per expectation; columns for the statuses that occur, for harm, and for the naive evaluator if asked."""
    statuses = [status for status in reversed(Status) if any(r.outcome.status is status for r in records)]
    asked = any(record.naive for record in records)
    table = Table(title="expected (rows) and judged (columns)", title_justify="left")
    table.add_column("expect")
    for title in ("cases", "as expected", *(status.value for status in statuses), "harm"):
        table.add_column(title, justify="right")
    if asked:
        table.add_column("naive credits", justify="right")
    for expect in EXPECTS:
        rows = [record for record in records if record.case.expect == expect]
        if not rows:
            continue
        good = sum(record.ok for record in rows)
        cells = [
            str(len(rows)),
            Text(str(good), style="green" if good == len(rows) else "bold red"),
            *(_count(record.outcome.status is status for record in rows) for status in statuses),
            _count(map(_harmed, rows)),
        ]
        if asked:
            cells.append(_count(bool(record.naive and record.naive.credited) for record in rows))
        table.add_row(expect, *map(str, cells))
    return table


def failed(records: Sequence[Record]) -> Table | None:
    """The cases that did not go as expected; None if there is none."""
    rows = [record for record in records if not record.ok]
    if not rows:
        return None
    table = Table(title="not as expected", title_justify="left")
    for title in ("case", "expect", "judged", "speedup", "what went wrong", "how the case works"):
        table.add_column(title, overflow="fold")
    for record in rows:
        speedup = record.outcome.speedup
        table.add_row(
            record.case.name,
            record.case.expect,
            record.outcome.status.value,
            "" if math.isnan(speedup) else f"{speedup:.3g}x",
            "; ".join(record.failures),
            record.case.why,
        )
    return table


def each(records: Sequence[Record]) -> Table:
    """Every case with what the judge told of it."""
    table = Table(title="case by case", title_justify="left")
    for title in ("case", "expect", "judged", "what the judge says"):
        table.add_column(title, overflow="fold")
    for record in records:
        outcome = record.outcome
        said = outcome.feedback.strip().partition("\n")[0]
        table.add_row(record.case.name, record.case.expect, outcome.status.value, Text(clip(said, _SAID_CHARS)))
    return table


def _harmed(record: Record) -> bool:
    outcome = record.outcome
    return bool(outcome.markers or outcome.leaks or outcome.processes or outcome.probe)


def _count(found: object) -> str:
    number = sum(bool(one) for one in found)  # type: ignore[attr-defined]
    return str(number) if number else "·"
