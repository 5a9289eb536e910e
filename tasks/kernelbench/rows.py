"""A problem of KernelBench as a row of a table.

- `row_problem` -- level and number.
- `row_source` -- the text.
- `index` -- rows by task id.
- `sources` -- texts by task id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.tasks.kernelbench import ids

__all__ = ["index", "row_problem", "row_source", "sources"]


def row_problem(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return level and number that a row states, as numbers or digits; None if it does not state both.

    >>> row_problem({"level": 1, "problem_id": "19"}), row_problem({"level_id": "level2", "task_id": 3})
    ((1, 19), (2, 3))
    """
    level, number = row.get("level", row.get("level_id")), row.get("problem_id", row.get("task_id"))
    if isinstance(level, (int, str)) and isinstance(number, (int, str)):
        level, number = str(level).removeprefix("level"), str(number)
        if level.isdecimal() and number.isdecimal():
            return int(level), int(number)
    return None


def row_source(row: Mapping[str, Any], where: str) -> str:
    """Return the source in a row: its ``code``, ``source`` or ``ref_code``.

    Raises:
        InvalidOptionError: if it has none.
    """
    for key in ("code", "source", "ref_code"):
        if isinstance(row.get(key), str):
            return row[key]
    raise InvalidOptionError(f"{where}: needs the source as text under code, source or ref_code; has {', '.join(row)}.")


def index(rows: Iterable[Mapping[str, Any]], where: str) -> dict[str, Mapping[str, Any]]:
    """Return the rows that are problems, by task id.

    Args:
        rows: rows of one or several files.
        where: what they are from, for the error.

    Raises:
        InvalidOptionError: if a problem comes twice.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        problem = row_problem(row)
        if problem and found.setdefault(ids.make_id(*problem), row) is not row:
            raise InvalidOptionError(f"{where} has more than one row for {ids.make_id(*problem)}.")
    return found


def sources(rows: Iterable[Mapping[str, Any]], where: str) -> dict[str, str]:
    """Return the texts of the rows that are problems, by task id.

    Raises:
        InvalidOptionError: if a problem comes twice or has no text.
    """
    return {task_id: row_source(row, f"{where}, {task_id}") for task_id, row in index(rows, where).items()}
