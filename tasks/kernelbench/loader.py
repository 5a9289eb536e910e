"""KernelBench's problems as tasks, read from wherever the user keeps them.

- `build` -- a task from one problem's level, number, name and source.
- `load` -- a task by id from ``KERNELBENCH_DIR``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, MissingDataError
from kernelgym_env.settings import kernelbench_dir
from kernelgym_env.tasks import files
from kernelgym_env.tasks.kernelbench import flaws, ids
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.source import normalise, summary

__all__ = ["build", "load", "row_problem", "row_source"]

_HOW = (
    "Set KERNELBENCH_DIR to a checkout of KernelBench (github.com/ScalingIntelligence/KernelBench), to its KernelBench "
    "folder, or to a JSONL file with one problem a line (level, problem_id, name, code)."
)


def build(level: int, number: int, name: str, source: str, origin: str) -> Task:
    """Return the task of one problem.

    Args:
        level: 1 to 4.
        number: the problem's number in its level, from 1.
        name: its name as published, e.g. ``19_ReLU``.
        source: its text.
        origin: where the text came from.

    Raises:
        InvalidOptionError: if the source does not fit the contract.
    """
    source = normalise(source)
    try:
        description = summary(source)
    except SyntaxError:
        description = ""  # Task says what is wrong with it
    return Task(
        id=ids.make_id(level, number),
        source=source,
        title=ids.title(name),
        description=description,
        level=level,
        tags=("kernelbench", f"level{level}", *flaws.flaw_tags(level, number)),
        origin=origin,
        licence="MIT",
    )


def load(task_id: str) -> Task:
    """Return the task with that id from the data at ``KERNELBENCH_DIR``.

    Raises:
        MissingDataError: if there is no data, or it lacks the problem; says how to get it.
        InvalidOptionError: if the data is malformed.
    """
    root = kernelbench_dir()
    if root is None:
        raise MissingDataError(f"KernelBench's problems are not part of this package. {_HOW}")
    if root.is_dir():
        found = _in_folder(root, task_id)
    elif files.is_jsonl(root) and root.is_file():
        found = _in_rows(root, task_id)
    else:
        state = "is neither a folder nor a .jsonl or .jsonl.gz file" if root.exists() else "does not exist"
        raise MissingDataError(
            f"KernelBench's problems were looked for at KERNELBENCH_DIR={root}, which {state}. {_HOW}"
        )
    if found is None:
        raise MissingDataError(f"{task_id} is not among the problems at KERNELBENCH_DIR={root}. {_HOW}")
    return found


def row_problem(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return level and number that a row states, as numbers or digits; None if it does not state both."""
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


def _in_folder(root: Path, task_id: str) -> Task | None:
    """Find a problem in a checkout or its ``KernelBench`` folder."""
    level, number = ids.parse_id(task_id) or (0, 0)
    for folder in (root / "KernelBench" / f"level{level}", root / f"level{level}"):
        for path in sorted(folder.glob(f"{number}_*.py")):
            return build(level, number, path.stem, files.read_source(path), str(path))
    return None


def _in_rows(path: Path, task_id: str) -> Task | None:
    state = path.stat()
    row = _row_index(path, state.st_mtime_ns, state.st_size).get(task_id)
    if row is None:
        return None
    level, number = ids.parse_id(task_id) or (0, 0)
    return build(level, number, str(row.get("name", "")), row_source(row, f"{path}, {task_id}"), str(path))


@lru_cache(maxsize=4)
def _row_index(path: Path, mtime_ns: int, size: int) -> dict[str, Mapping[str, Any]]:
    """The rows of a file by task id."""
    index: dict[str, Mapping[str, Any]] = {}
    for row in files.read_rows(path):
        problem = row_problem(row)
        if problem and index.setdefault(ids.make_id(*problem), row) is not row:
            raise InvalidOptionError(f"{path} has more than one row for {ids.make_id(*problem)}.")
    return index
