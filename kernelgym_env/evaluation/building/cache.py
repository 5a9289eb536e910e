"""Objects that the judge had compiled, on disk: by the digest of all that went into each.

Only the judge writes here, what its own compiling processes made of texts and flags that are in the key. No submission
can see the folder.

- `ObjectCache` -- look up, keep.
- `Kept` -- an object with what its compiler said.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from kernelgym_env.keeping import replacing, write_whole

__all__ = ["Kept", "ObjectCache"]

_MOST_BYTES = 4 << 30
_PRUNE_EVERY = 64


@dataclass(frozen=True)
class Kept:
    """An object.

    Attributes:
        data: its bytes.
        output: what the compiler said, warnings as a rule.
        how: with which headers it was compiled.
    """

    data: bytes
    output: str
    how: str


class ObjectCache:
    """A folder of objects; what cannot be read or does not fit its digest counts as not there.

    Args:
        folder: made when something is first kept.
        most_bytes: when there is more, what was not asked for longest goes.
    """

    def __init__(self, folder: Path, most_bytes: int = _MOST_BYTES) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self._kept = 0

    def _paths(self, key: str) -> tuple[Path, Path]:
        return self.folder / key[:2] / f"{key}.o", self.folder / key[:2] / f"{key}.json"

    def find(self, key: str) -> Kept | None:
        """The object of a key, None where there is none."""
        path, facts = self._paths(key)
        try:
            told = json.loads(facts.read_text(encoding="utf-8"))
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != told["sha256"] or told["key"] != key:
                return None
            found = Kept(data, str(told["output"]), str(told["how"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        with contextlib.suppress(OSError):
            os.utime(facts)
        return found

    def keep(self, key: str, kept: Kept) -> None:
        """Write an object; what the disk does not take is not kept."""
        path, facts = self._paths(key)
        told = {"key": key, "sha256": hashlib.sha256(kept.data).hexdigest(), "output": kept.output, "how": kept.how}
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(path, private=True) as new:
                new.write_bytes(kept.data)
            write_whole(facts, json.dumps(told))
        self._kept += 1
        if self._kept % _PRUNE_EVERY == 1:
            self._prune()

    def _prune(self) -> None:
        found = []
        for facts in self.folder.glob("*/*.json"):
            with contextlib.suppress(OSError):
                found.append((facts.stat().st_mtime, facts.with_suffix(".o").stat().st_size, facts))
        total = sum(size for _, size, _ in found)
        for _, size, facts in sorted(found):
            if total <= self.most_bytes:
                return
            facts.unlink(missing_ok=True)
            facts.with_suffix(".o").unlink(missing_ok=True)
            total -= size
