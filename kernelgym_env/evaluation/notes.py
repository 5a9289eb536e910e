"""What judges have found out about a task's reference: kept by each in its process, and on disk for the others.

Before a task's first submission is judged its reference is looked at: whether it is deterministic, what it returns,
how much work it does, how far its inputs may be mixed, which value laws it bears. That takes up to seconds, and comes
out as before, so it is done once for a task, a device, versions and the constants of a protocol that enter into it.
What was found is forgotten after a week, since some of it depends on luck. That a task cannot be judged is not kept.

- `TaskNotes` -- of one task.
- `Notes` -- of all tasks.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from kernelgym_env import settings
from kernelgym_env._version import __version__
from kernelgym_env.evaluation.contents import Mixing
from kernelgym_env.evaluation.keyed_files import KeyedFiles
from kernelgym_env.evaluation.lawbook import LawBook
from kernelgym_env.evaluation.protocols import Protocol
from kernelgym_env.evaluation.reference import Reference
from kernelgym_env.evaluation.roofline import Work
from kernelgym_env.tasks.model import Task

__all__ = ["Notes", "Probed", "TaskNotes"]

_MOST_TASKS = 1024
_WEEK_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Probed:
    """What a look at the reference shows.

    Attributes:
        out_tree: description of its output.
        out_size: bytes of an output buffer.
        mutates: whether it writes into its inputs.
        work: what a call has to do; None where it cannot be counted.
    """

    out_tree: dict[str, Any]
    out_size: int
    mutates: bool
    work: Work | None

    def tell(self, reference: Reference) -> None:
        """Spare a reference its own `probe`."""
        reference.out_tree, reference.out_size, reference.mutates = self.out_tree, self.out_size, self.mutates


@dataclass
class TaskNotes:
    """What is known of a task under a protocol.

    Attributes:
        book: the value laws that it bears.
        probed: None before it was looked at.
        mixing: how far its inputs may be mixed, None while that is unknown.
        largest_bytes: bytes of the largest of its tensors, None while that is unknown.
        since_s: when the first of it was found out, in seconds since 1970.
    """

    book: LawBook
    probed: Probed | None = None
    mixing: Mixing | None = None
    largest_bytes: int | None = None
    since_s: float = field(default_factory=time.time)

    @property
    def is_old(self) -> bool:
        """Whether it is to be found out again."""
        return time.time() - self.since_s > _WEEK_S

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        probed = None if self.probed is None else asdict(self.probed)
        return {
            "probed": probed,
            "mixing": self.mixing,
            "laws": self.book.to_dict(),
            "largest_bytes": self.largest_bytes,
            "since_s": self.since_s,
        }

    def add(self, found: Mapping[str, Any]) -> None:
        """Take over what another judge knows of the same task, where these have nothing.

        Args:
            found: from `to_dict`.

        Raises:
            KeyError, TypeError, ValueError: if it has another form.
        """
        probed, mixing, largest, since_s = (found[key] for key in ("probed", "mixing", "largest_bytes", "since_s"))
        if mixing is not None and mixing not in get_args(Mixing):
            raise ValueError(f"mixing of another version: {mixing!r}")
        self.book.add(found["laws"])
        if self.probed is None and probed is not None:
            work = None if probed["work"] is None else Work(**probed["work"])
            self.probed = Probed(dict(probed["out_tree"]), int(probed["out_size"]), bool(probed["mutates"]), work)
        if self.mixing is None:
            self.mixing = mixing
        if self.largest_bytes is None and largest is not None:
            self.largest_bytes = int(largest)
        self.since_s = min(self.since_s, float(since_s))


class Notes:
    """The notes of one judge, which other judges on like devices share.

    Args:
        hardware: of the device, as plain data.
        versions: of what runs the reference.
        folder: where they are; None takes ``notes`` below the cache folder of the settings.
    """

    def __init__(self, hardware: Mapping[str, str], versions: Mapping[str, str], folder: Path | None = None) -> None:
        self._conditions = {"device": dict(hardware), "versions": dict(versions), "package": [__version__, _code()]}
        self._files = KeyedFiles(folder or settings.cache_dir() / "notes")
        self._known: dict[Any, TaskNotes] = {}
        self._touched: dict[Any, dict[str, Any]] = {}

    def of(self, task: Task, protocol: Protocol) -> TaskNotes:
        """What is known of a task, as it is sized for the device; what is found out goes in there, see `keep`."""
        place = (task.hash, task.input_laws, protocol)
        if place in self._known and self._known[place].is_old:
            del self._known[place]
            self._touched.pop(place, None)
        if place not in self._known:
            if len(self._known) >= _MOST_TASKS:
                self._known.pop(next(iter(self._known)))
            self._known[place] = TaskNotes(LawBook(task))
            self._add_others(place)
        if place not in self._touched:
            self._touched[place] = self._known[place].to_dict()
        return self._known[place]

    def forget(self) -> None:
        """Forget what was found out since the last `keep`: an evaluation that was broken off may be wrong in it."""
        for place, before in self._touched.items():
            notes = self._known.get(place)
            if notes is not None and notes.to_dict() != before:
                del self._known[place]
        self._touched.clear()

    def keep(self) -> None:
        """Write down what was found out since the last time."""
        for place, before in self._touched.items():
            notes = self._known.get(place)
            if notes is None or notes.to_dict() == before:
                continue
            self._add_others(place)
            with suppress(OSError):  # on a full disk it is found out again
                self._files.save(self._key(place), notes.to_dict())
        self._touched.clear()

    def _add_others(self, place: Any) -> None:
        found = self._files.load(self._key(place))
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # of another form
            if found is not None and time.time() - float(found["since_s"]) <= _WEEK_S:
                self._known[place].add(found)

    def _key(self, place: Any) -> dict[str, Any]:
        task_hash, laws, protocol = place
        return {"task": task_hash, "laws": laws, "protocol": protocol.constants(), **self._conditions}


@functools.lru_cache(maxsize=1)
def _code() -> str:
    """Digest of the code that finds these things out."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()
