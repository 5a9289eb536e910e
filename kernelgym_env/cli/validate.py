"""``kernelgym validate``: judge stored results again, and say which agree."""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from kernelgym_env import devices, settings
from kernelgym_env.cli.options import add_device, add_sandbox, sandbox_of
from kernelgym_env.cli.output import FAULT, NEGATIVE, OK, console, print_json, progress
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.tasks import load_tasks
from kernelgym_env.tasks.model import Task
from kernelgym_env.validation import Agreement, CannotJudgeError, Stored, compare, read, resubmission

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "judge stored results again, and say which agree"
DESCRIPTION = (
    "Judge the sources of stored results again, on fresh inputs, and say which verdicts and speedups agree. Speedups "
    "agree where one lies in the other's interval."
)
_COLOURS = {"yes": "green", "no": "red", "fault": "magenta", "–": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "records",
        nargs="+",
        metavar="RECORD",
        help="a file with results and their sources: what `kernelgym eval --json` prints, a list of it, or JSON lines "
        "(.jsonl, .jsonl.gz), also those of stored trajectories; or the folder of a run or "
        "a search",
    )
    parser.add_argument(
        "--tasks",
        action="append",
        default=[],
        metavar="SPEC",
        help="a file or folder with tasks that are in no suite; may be repeated. No task is taken from a record",
    )
    add_device(parser, "where to judge them (default: the kind of device that each was judged on)")
    parser.add_argument("--sample", type=int, default=None, metavar="N", help="judge N of them, drawn at random")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draw (default: 0)")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="CPU threads of each process (default: torch's)"
    )
    add_sandbox(parser)


@dataclass
class _Row:
    """One result and what became of it."""

    stored: Stored
    submission: Submission | None = None
    again: Evaluation | None = None
    found: Agreement = Agreement(None, "")

    @property
    def agrees(self) -> str:
        if self.again is None:
            return "–"
        return {True: "yes", False: "no", None: "fault"}[self.found.agree]

    def to_dict(self) -> dict[str, Any]:
        stored = self.stored.evaluation
        return {
            "record": self.stored.name,
            "task_id": stored.task_id,
            "source_hash": stored.source_hash,
            "judged": self.again is not None,
            "agree": self.found.agree,
            "why": self.found.why,
            "stored": _figures(stored),
            "again": None if self.again is None else _figures(self.again),
        }


def run(arguments: argparse.Namespace) -> int:
    """Judge and print."""
    if arguments.sample is not None and arguments.sample < 1:
        raise InvalidOptionError(f"--sample must be at least 1, got {arguments.sample}.")
    tasks = {task.id: task for spec in arguments.tasks for task in load_tasks(spec)}
    rows = [_prepared(stored, tasks, arguments.device) for name in arguments.records for stored in read(Path(name))]
    chosen = [row for row in rows if row.submission is not None]
    if not chosen:
        raise InvalidOptionError(_nothing(rows, arguments.records))
    if arguments.sample is not None and arguments.sample < len(chosen):
        drawn = set(random.Random(arguments.seed).sample(range(len(chosen)), arguments.sample))
        left_out = {id(row) for place, row in enumerate(chosen) if place not in drawn}
        chosen = [row for row in chosen if id(row) not in left_out]
        rows = [row for row in rows if id(row) not in left_out]
    _judge(chosen, arguments)
    counts = Counter(row.agrees for row in rows)
    summary = {
        "agree": counts["yes"],
        "disagree": counts["no"],
        "faults": counts["fault"],
        "not_judged": counts["–"],
        "share": counts["yes"] / max(1, counts["yes"] + counts["no"]) if counts["yes"] + counts["no"] else math.nan,
    }
    if arguments.json:
        print_json({"summary": summary, "records": [row.to_dict() for row in rows]})
    else:
        console().print(_table(rows))
        console().print(_told(summary))
    return FAULT if counts["fault"] else NEGATIVE if counts["no"] else OK


def _prepared(stored: Stored, tasks: dict[str, Task], device: str) -> _Row:
    try:
        submission = resubmission(stored, tasks, device)
        devices.resolve_device(submission.device)  # this machine may lack it
        return _Row(stored, submission)
    except (CannotJudgeError, InvalidOptionError) as error:
        return _Row(stored, found=Agreement(None, str(error)))


def _nothing(rows: list[_Row], names: list[str]) -> str:
    if not rows:
        return f"There is no result in {', '.join(names)}."
    reasons = Counter(row.found.why for row in rows).most_common(3)
    told = "; ".join(f"{why} ({count} of {len(rows)})" for why, count in reasons)
    return f"None of the {len(rows)} results can be judged again: {told}."


def _judge(rows: list[_Row], arguments: argparse.Namespace) -> None:
    from kernelgym_env.pools.local import LocalPool

    pool = LocalPool(arguments.threads, **sandbox_of(arguments), judges=settings.judges())
    try:
        futures = {pool.submit(row.submission): row for row in rows if row.submission is not None}
        with progress(len(futures)) as advance:
            for future in as_completed(futures):
                row = futures[future]
                row.again = future.result()
                row.found = compare(row.stored.evaluation, row.again)
                advance(f"{row.stored.name}: {row.again.status}, agrees: {row.agrees}")
    finally:
        pool.close()


def _figures(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "status": evaluation.status.value,
        "speedup": evaluation.speedup,
        "speedup_low": evaluation.speedup_low,
        "speedup_high": evaluation.speedup_high,
        "device": evaluation.device,
        "protocol": evaluation.protocol,
    }


def _interval(evaluation: Evaluation | None) -> str:
    if evaluation is None or math.isnan(evaluation.speedup):
        return "–"
    return f"{evaluation.speedup:.3g} [{evaluation.speedup_low:.3g}, {evaluation.speedup_high:.3g}]"


def _table(rows: list[_Row]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for column in ("record", "task", "status", "now", "speedup", "now", "agrees"):
        table.add_column(column)
    table.add_column("why", overflow="fold")
    for row in rows:
        stored = row.stored.evaluation
        table.add_row(
            row.stored.name,
            stored.task_id,
            stored.status.value,
            "–" if row.again is None else row.again.status.value,
            _interval(stored),
            _interval(row.again),
            Text(row.agrees, style=_COLOURS[row.agrees]),
            row.found.why,
        )
    return table


def _told(summary: dict[str, Any]) -> str:
    judged = summary["agree"] + summary["disagree"]
    parts = [f"{summary['agree']} of {judged} agree" + (f" ({summary['share']:.0%})" if judged else "")]
    if summary["faults"]:
        parts.append(f"{summary['faults']} ended in a fault")
    if summary["not_judged"]:
        parts.append(f"{summary['not_judged']} could not be judged again")
    return ", ".join(parts) + "."
