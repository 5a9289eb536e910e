"""Writing into a job's folder, in which code that nobody trusts may have run before.

- `write_text` -- write a file without following a link that such code left.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["write_text"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_text(folder: Path, name: str, text: str) -> Path:
    """Write a new file, in place of one that is there; folders on the way are made. All belong to the folder's owner.

    Args:
        folder: the job's folder.
        name: relative path of the file, without ``..``.
        text: written as UTF-8.

    Returns:
        Its path.

    Raises:
        OSError: if a folder on the way is a link or a file.
    """
    *parents, last = name.split("/")
    place = os.open(folder, _FOLDER)
    owner = os.fstat(place)
    try:
        for parent in parents:
            made = True
            try:
                os.mkdir(parent, 0o700, dir_fd=place)
            except FileExistsError:
                made = False
            inner = os.open(parent, _FOLDER, dir_fd=place)
            os.close(place)
            place = inner
            if made:
                os.fchown(place, owner.st_uid, owner.st_gid)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(last, dir_fd=place)
        with open(os.open(last, _FILE, 0o600, dir_fd=place), "w", encoding="utf-8") as file:
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(text)
    finally:
        os.close(place)
    return folder / name
