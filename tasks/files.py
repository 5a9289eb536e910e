"""Reading task files: text, tables of rows, folders.

- `read_source` -- a Python file as text.
- `read_rows` -- the rows of a JSON lines file, plain or gzipped, or of a Parquet file; kept until the file changes.
- `parse_rows` -- the rows in the content of such a file.
- `TABLES`, `is_table` -- the ends of such files' names, and whether a path has one.
- `is_parquet` -- whether a name is that of a Parquet file.
- `parquet` -- the library that reads Parquet.
- `python_files` -- the Python files below a folder.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, KernelGymError, MissingDataError

__all__ = ["TABLES", "is_parquet", "is_table", "parquet", "parse_rows", "python_files", "read_rows", "read_source"]

TABLES = (".jsonl", ".jsonl.gz", ".parquet")
"""How the name of a file with one task a row ends."""


def is_table(path: Path) -> bool:
    """Whether the name ends like that of a file with rows, see `TABLES`."""
    return path.name.lower().endswith(TABLES)


def is_parquet(path: Path) -> bool:
    """Whether the name ends like that of a Parquet file."""
    return path.name.lower().endswith(".parquet")


def parquet() -> Any:
    """Return the module `pyarrow.parquet`, an optional part.

    Raises:
        MissingDataError: if pyarrow is not installed; says how to get it.
    """
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingDataError(
            f"Parquet files need pyarrow, and {error.name} is not installed. Run: pip install pyarrow; or convert the "
            f"file to JSON lines."
        ) from error
    return pyarrow.parquet


def read_source(path: Path) -> str:
    """Return the text of a Python file.

    Raises:
        InvalidOptionError: if it is not UTF-8, is no file, or cannot be read.
    """
    try:
        _check_file(path)
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidOptionError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidOptionError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from error


def read_rows(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the rows of a file with tasks; blank lines are skipped. The rows are shared, so leave them as they are.

    Raises:
        InvalidOptionError: if a line is not a JSON object, the file is not what its name says, or it cannot be read.
        MissingDataError: for a Parquet file without pyarrow.
    """
    try:
        _check_file(path)
        state = path.stat()
        return _rows(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        if isinstance(error, KernelGymError):
            raise
        raise InvalidOptionError(f"{path} cannot be read: {error.strerror}.") from error


def _check_file(path: Path) -> None:
    """Refuse what would fail or never end in reading: a pipe, say."""
    if path.is_file():
        return
    if path.is_symlink():
        state = "a link that leads to no file"
    else:
        state = "a folder" if path.is_dir() else "neither file nor folder" if path.exists() else "not there"
    raise InvalidOptionError(f"{path} cannot be read: it is {state}. Put a file there or remove it.")


@lru_cache(maxsize=8)
def _rows(path: Path, mtime_ns: int, size: int) -> tuple[Mapping[str, Any], ...]:
    return parse_rows(path.read_bytes(), path.name, str(path))


def parse_rows(data: bytes, name: str, where: str) -> tuple[Mapping[str, Any], ...]:
    """Return the rows in the content of a file, as `read_rows` does.

    Args:
        data: the content.
        name: the file's name, whose end says what it is.
        where: how to speak of it.

    Raises:
        InvalidOptionError: if the content is not what the name says.
        MissingDataError: for a Parquet file without pyarrow.
    """
    if name.lower().endswith(".parquet"):
        return _parquet_rows(data, where)
    return _json_rows(data, name, where)


def _parquet_rows(data: bytes, where: str) -> tuple[Mapping[str, Any], ...]:
    library = parquet()
    try:
        return tuple(library.read_table(io.BytesIO(data)).to_pylist())
    except (OSError, ValueError) as error:  # what pyarrow's complaints about the content of a file are
        raise InvalidOptionError(f"{where} cannot be read as Parquet: {error}") from error


def _json_rows(data: bytes, name: str, where: str) -> tuple[Mapping[str, Any], ...]:
    rows: list[Mapping[str, Any]] = []
    try:
        if name.lower().endswith(".gz"):
            data = gzip.decompress(data)
        text = data.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InvalidOptionError(f"{where} cannot be read as JSON lines: {error}.") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InvalidOptionError(f"{where}, line {number}: not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise InvalidOptionError(f"{where}, line {number}: needs a JSON object, got {type(row).__name__}.")
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
