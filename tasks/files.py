"""Reading task files: text, JSON lines, folders.

- `read_source` -- a Python file as text.
- `read_rows` -- the rows of a JSON lines file, plain or gzipped; kept per path and time of change.
- `is_jsonl` -- whether a path is such a file by its name.
- `python_files` -- the Python files below a folder.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError

__all__ = ["is_jsonl", "python_files", "read_rows", "read_source"]


def is_jsonl(path: Path) -> bool:
    """Whether the name ends like a JSON lines file, ``.jsonl`` or ``.jsonl.gz``."""
    return path.name.lower().endswith((".jsonl", ".jsonl.gz"))


def read_source(path: Path) -> str:
    """Return the text of a Python file.

    Raises:
        InvalidOptionError: if it is not UTF-8.
        OSError: if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidOptionError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from error


def read_rows(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the objects of a JSON lines file; blank lines are skipped. The rows are shared, so leave them as they are.

    Raises:
        InvalidOptionError: if a line is not a JSON object, or the file is not text or not gzip.
        OSError: if it cannot be read.
    """
    state = path.stat()
    return _rows(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _rows(path: Path, mtime_ns: int, size: int) -> tuple[Mapping[str, Any], ...]:
    rows: list[Mapping[str, Any]] = []
    data = path.read_bytes()
    try:
        if path.name.lower().endswith(".gz"):
            data = gzip.decompress(data)
        text = data.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InvalidOptionError(f"{path} cannot be read as JSON lines: {error}.") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InvalidOptionError(f"{path}, line {number}: not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise InvalidOptionError(f"{path}, line {number}: needs a JSON object, got {type(row).__name__}.")
        rows.append(row)
    return tuple(rows)


def python_files(folder: Path) -> list[Path]:
    """Return the ``.py`` files below a folder, hidden folders left out, with numbers in names sorted as numbers."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        found += [Path(root, name) for name in names if name.endswith(".py") and not name.startswith(".")]
    return sorted(found, key=_natural)


def _natural(path: Path) -> list[list[tuple[int, str]]]:
    """A sort key under which ``2_b.py`` comes before ``10_a.py``."""
    return [
        [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d+)", part)]
        for part in path.parts
    ]
