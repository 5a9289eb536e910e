"""Plain data on disk, by key, for all processes of a user.

- `KeyedFiles` -- the files.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym_env.keeping import digest, write_whole

__all__ = ["KeyedFiles"]

_LARGEST = 1 << 24  # bytes of a file
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class KeyedFiles:
    """One file for each key. Several processes and threads may use the folder, which may be removed at any time.

    A file that is torn, was changed, belongs to another user or may be written by one is as good as none; it is
    replaced by the next `save`.

    Args:
        folder: where they are; made by the first `save`.

    Attributes:
        folder: the same.
        ignored: number of files that were there and could not be trusted.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = KeyedFiles(Path(folder.name))
    >>> files.save({"task": "a/b"}, {"seconds": 3})
    >>> files.load({"task": "a/b"}), files.load({"task": "a/c"})
    ({'seconds': 3}, None)
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ignored = 0
        self._lock = threading.Lock()

    def load(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """What is kept under a key of plain data; None where there is nothing."""
        try:
            path = self._path(key)
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    raise ValueError("not a file of this user")
                if status.st_mode & _WRITABLE_BY_OTHERS or status.st_size > _LARGEST:
                    raise ValueError("others may write it, or it is too large")
                found = json.loads(file.read(_LARGEST + 1))
            if found["key"] != json.loads(json.dumps(key)) or found["digest"] != digest(found["data"]):
                raise ValueError("not what was written")
            return dict(found["data"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            with self._lock:
                self.ignored += 1
            return None

    def save(self, key: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Keep plain data, in place of what was kept under the key; at once for all readers.

        Raises:
            OSError: if the folder cannot be written.
        """
        path = self._path(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps({"key": dict(key), "digest": digest(data), "data": data}))

    def _path(self, key: Mapping[str, Any]) -> Path:
        name = digest(key)
        return self.folder / name[:2] / f"{name}.json"
