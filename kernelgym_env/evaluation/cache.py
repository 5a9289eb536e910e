"""Evaluations kept for the next time: in memory, or on disk for all processes of a user.

- `EvaluationCache` -- the evaluations by key.
- `KEPT` -- the outcomes that are kept.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.keeping import digest, write_whole

__all__ = ["KEPT", "EvaluationCache"]

KEPT = frozenset(
    {
        Status.COMPILE_ERROR,
        Status.RUNTIME_ERROR,
        Status.WRONG,
        Status.POLICY,
        Status.INTEGRITY,
        Status.CORRECT,
    }
)
"""What would come out again. A fault, a timeout and a crash may be the machine's doing, an invalid task is the task's,
and a format error costs nothing."""

_LARGEST = 1 << 24  # bytes of a file
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class EvaluationCache:
    """Evaluations by key. Several threads may use it, and on disk several processes.

    A file that is torn, was changed, belongs to another user or may be written by one is as good as none; it is
    replaced at the next evaluation. A folder on disk grows without bound and may be removed at any time.

    Args:
        folder: where to keep them on disk, one file each; None keeps them in memory.
        limit: in memory the greatest number; the one that was used the longest ago goes first.

    Raises:
        InvalidOptionError: for a limit that is not an integer of at least 1.

    >>> cache = EvaluationCache()
    >>> cache.save({"source": "…"}, Evaluation("KernelGym/RowSum", Status.CORRECT, speedup=2.0))
    True
    >>> cache.load({"source": "…"}).speedup
    2.0
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int = 10_000) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidOptionError(f"limit of a cache must be an integer of at least 1, got {limit!r}.")
        self.folder = None if folder is None else Path(folder).expanduser()
        self.limit = limit
        self._ignored = 0
        self._kept: dict[str, Evaluation] = {}
        self._lock = threading.Lock()

    @property
    def ignored(self) -> int:
        """Files that were there and could not be trusted."""
        return self._ignored

    def load(self, key: Mapping[str, Any]) -> Evaluation | None:
        """What is kept under a key of plain data; None where there is nothing."""
        name = digest(key)
        if self.folder is not None:
            return self._read(self._path(name), key)
        with self._lock:
            found = self._kept.pop(name, None)
            if found is not None:
                self._kept[name] = found
            return found

    def save(self, key: Mapping[str, Any], evaluation: Evaluation) -> bool:
        """Keep an evaluation, in place of what was kept under the key; at once for all readers.

        Returns:
            Whether it is one of `KEPT`; others are left out.

        Raises:
            OSError: if the folder cannot be written.
        """
        if evaluation.status not in KEPT:
            return False
        name = digest(key)
        if self.folder is not None:
            self._write(self._path(name), key, evaluation)
            return True
        with self._lock:
            self._kept.pop(name, None)
            self._kept[name] = evaluation
            while len(self._kept) > self.limit:
                del self._kept[next(iter(self._kept))]
        return True

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / name[:2] / f"{name}.json"

    def _read(self, path: Path, key: Mapping[str, Any]) -> Evaluation | None:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    raise ValueError("not a file of this user")
                if status.st_mode & _WRITABLE_BY_OTHERS or status.st_size > _LARGEST:
                    raise ValueError("others may write it, or it is too large")
                data = json.loads(file.read(_LARGEST + 1))
            if data["key"] != json.loads(json.dumps(key)) or data["digest"] != digest(data["evaluation"]):
                raise ValueError("not what was written")
            evaluation = Evaluation.from_dict(data["evaluation"])
            if evaluation.status not in KEPT:
                raise ValueError("an outcome that is not kept")
            return evaluation
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            with self._lock:
                self._ignored += 1
            return None

    @staticmethod
    def _write(path: Path, key: Mapping[str, Any], evaluation: Evaluation) -> None:
        data = evaluation.to_dict()
        document = {"key": dict(key), "digest": digest(data), "evaluation": data}
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(document))
