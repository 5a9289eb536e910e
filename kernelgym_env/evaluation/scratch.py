"""Writing into a job's folder, in which code that nobody trusts may have run before.

- `write_text` -- write a file without following a link that such code left.
- `keep_caches` -- leave nothing behind for the next process but what was compiled.
- `remove_tree` -- remove what such code left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["CACHES", "HOME", "TMP", "keep_caches", "remove_tree", "write_text"]

HOME, TMP = "home", "tmp"
"""Folders in a job's folder."""

CACHES = ("triton", "torch_extensions", "inductor", "cupy", "nv")
"""Folders in the former, in which compilers keep what they made."""

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


def keep_caches(folder: Path) -> None:
    """Empty a job's folder but for the caches of compilers, and make its folder of temporary files anew.

    A source that is run once more finds what it compiled, and none of the files that it wrote: no sign that it ran.

    Args:
        folder: the job's folder, in which no process runs any more.

    Raises:
        OSError: if the folder for temporary files cannot be made.
    """
    owner = folder.stat()
    folder.chmod(0o700)  # a submission may have taken the right to enter away
    for entry in [*folder.iterdir()]:
        if entry.name != HOME or entry.is_symlink() or not entry.is_dir():
            _remove(entry)
            continue
        entry.chmod(0o700)
        for inner in [*entry.iterdir()]:
            if inner.name not in CACHES or inner.is_symlink() or not inner.is_dir():
                _remove(inner)
    for name in (HOME, TMP):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
        os.chown(folder / name, owner.st_uid, owner.st_gid)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder that a submission may have filled in any way; never raises."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        # folders nested by the thousand, or without the right to enter
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, stderr=subprocess.DEVNULL)
