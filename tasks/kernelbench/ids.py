"""KernelBench's numbering, known without its data.

- `LEVELS` -- how many problems each level has.
- `IDS` -- every task id, ``KernelBench/L1-001`` to ``KernelBench/L4-020``.
- `make_id`, `parse_id` -- between a level and number and an id.
- `title` -- readable words from a problem's name.
- `from_path` -- level, number and name from a checkout's ``level1/19_ReLU.py``.
"""

from __future__ import annotations

import re
from pathlib import PurePath

__all__ = ["IDS", "LEVELS", "from_path", "make_id", "parse_id", "title"]

LEVELS = {1: 100, 2: 100, 3: 50, 4: 20}
"""Number of problems per level; they are numbered from 1."""

_ID = re.compile(r"KernelBench/L(\d+)-(\d{3,})", re.ASCII)
_FILE = re.compile(r"(\d+)_(.+)", re.ASCII)
_FOLDER = re.compile(r"level_?(\d+)", re.ASCII)


def make_id(level: int, number: int) -> str:
    """Return the id of a problem.

    >>> make_id(1, 19)
    'KernelBench/L1-019'
    """
    return f"KernelBench/L{level}-{number:03d}"


def parse_id(task_id: str) -> tuple[int, int] | None:
    """Return level and number of an id, or None if it is not of this suite.

    >>> parse_id("KernelBench/L1-019")
    (1, 19)
    """
    match = _ID.fullmatch(task_id)
    return (int(match[1]), int(match[2])) if match else None


def title(name: str) -> str:
    """Return a problem's name without its number and underscores.

    >>> title("1_Square_matrix_multiplication_")
    'Square matrix multiplication'
    """
    match = _FILE.fullmatch(name)
    return " ".join((match[2] if match else name).replace("_", " ").split())


def from_path(path: PurePath) -> tuple[int, int, str] | None:
    """Return level, number and name of a problem's file in a checkout, or None for any other path.

    >>> from_path(PurePath("KernelBench/level1/19_ReLU.py"))
    (1, 19, '19_ReLU')
    """
    folder, file = _FOLDER.fullmatch(path.parent.name), _FILE.fullmatch(path.stem)
    if not folder or not file or path.suffix != ".py":
        return None
    return int(folder[1]), int(file[1]), path.stem


IDS = tuple(make_id(level, number) for level, count in LEVELS.items() for number in range(1, count + 1))
