"""Evaluations kept for the next time: in memory, or on disk for all processes of a user.

- `EvaluationCache` -- the evaluations by key.
- `KEPT` -- the outcomes that are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.keyed_files import KeyedFiles
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.keeping import digest

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
        self._files = None if self.folder is None else KeyedFiles(self.folder)
        self._odd = 0
        self._kept: dict[str, Evaluation] = {}
        self._lock = threading.Lock()

    @property
    def ignored(self) -> int:
        """Files that were there and could not be trusted."""
        return self._odd + (0 if self._files is None else self._files.ignored)

    def load(self, key: Mapping[str, Any]) -> Evaluation | None:
        """What is kept under a key of plain data; None where there is nothing."""
        if self._files is not None:
            return self._read(self._files, key)
        name = digest(key)
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
        if self._files is not None:
            self._files.save(key, evaluation.to_dict())
            return True
        name = digest(key)
        with self._lock:
            self._kept.pop(name, None)
            self._kept[name] = evaluation
            while len(self._kept) > self.limit:
                del self._kept[next(iter(self._kept))]
        return True

    def _read(self, files: KeyedFiles, key: Mapping[str, Any]) -> Evaluation | None:
        data = files.load(key)
        if data is None:
            return None
        try:
            evaluation = Evaluation.from_dict(data)
        except (ValueError, KeyError, TypeError, AttributeError):  # of another version
            evaluation = None
        if evaluation is None or evaluation.status not in KEPT:
            with self._lock:
                self._odd += 1
            return None
        return evaluation
