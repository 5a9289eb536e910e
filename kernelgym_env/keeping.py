"""Files that are written as a whole, the names that they are found by, and what is in them.

- `replacing`, `write_whole` -- replace a file so that nobody meets half of it.
- `write_new` -- the same for a file that is not to be there yet.
- `named` -- the file that a user means by a path to write to.
- `locked` -- a folder that one process at a time may write in.
- `digest` -- the same text for the same plain data.
- `finite` -- plain data that JSON has a form for.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError

try:
    import fcntl
except ImportError:  # Windows has no flock; one process at a time may write there
    fcntl = None  # type: ignore[assignment]

__all__ = ["digest", "finite", "locked", "named", "replacing", "write_new", "write_whole"]


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A new, empty file beside `path`, which takes its place when the block ends; its folder must be there.

    Args:
        path: the file to be replaced. A link or a pipe of this name is replaced too, not followed: what lies in a cache
            may be somebody else's work. Where a user named the path, `named` comes first.
        private: whether only its owner may read it; else the process's umask says who may.

    Yields:
        The path of the new file. If the block raises, it is removed, and `path` stays as it was.

    Raises:
        OSError: if the folder cannot be written, or the path is that of a folder; nothing is left behind then.
    """
    new = _beside(path)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if private else 0o666))
    try:
        yield new
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _beside(path: Path) -> Path:
    return path.parent / f".writing-{secrets.token_hex(8)}"


def named(path: str | os.PathLike[str]) -> Path:
    """The file that a user means by a path to write to; its folder is made.

    Args:
        path: with `~` for the user's folder; where it is a link, what it points to is meant.

    Raises:
        OSError: if it is that of a device, a pipe or a folder, which a file must not take the place of, or its folder
            cannot be made.
    """
    file = Path(path).expanduser().resolve()
    if file.exists() and not file.is_file():
        raise OSError(errno.EINVAL, "It is no regular file", str(path))
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from a folder; given back when the process ends, however it does.

    Raises:
        InvalidOptionError: if another process has it, or it cannot be written.
    """
    try:
        lock = open(folder / ".lock", "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InvalidOptionError(f"The folder {str(folder)!r} cannot be written: {error.strerror}.") from error
    with lock as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise InvalidOptionError(f"Another process is playing {folder}; wait for it.") from error
        yield


def write_whole(path: Path, text: str, *, private: bool = True) -> None:
    """Write a file at once for all readers, in place of the one before; its folder must be there.

    Args:
        path: the file.
        text: written as UTF-8.
        private: see `replacing`.

    Raises:
        OSError: if the folder cannot be written; nothing is left behind then.
    """
    with replacing(path, private=private) as new:
        new.write_text(text, encoding="utf-8")


def write_new(path: Path, text: str) -> None:
    """Write a file at once for all readers, unless there is one; its folder must be there.

    Raises:
        FileExistsError: if there is one, which stays as it is; of several that write at once, one succeeds.
        OSError: if the folder cannot be written; nothing is left behind then.
    """
    whole = _beside(path)
    try:
        whole.write_text(text, encoding="utf-8")
        os.link(whole, path)
    finally:
        whole.unlink(missing_ok=True)


def digest(data: Mapping[str, Any]) -> str:
    """SHA-256 of data that JSON has a form for, hexadecimal; the order of keys does not count.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def finite(data: Any) -> Any:
    """Plain data with None where it has a number that JSON does not have (NaN, infinity).

    >>> finite({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {str(key): finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return data
