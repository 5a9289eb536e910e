"""Which published version of KernelBench a set of problems is.

The texts changed between versions under the same ids: v0.1 made most inputs larger and positive, v0.2 mended three
references. Results on different versions are not comparable, so the versions are told apart by what the problems say.

`versions.json` holds a digest per problem. v0 is what CUDA-L1 published its kernels against (levels 1 to 3); v0.2 is
KernelBench's main branch after the entry of that name in its changelog; v0.1 is v0.2 but for the three problems that
the entry names (levels 1 to 3).

- `VERSIONS` -- their names, oldest first.
- `digest` -- of one problem's text.
- `content_hash` -- of a set of problems.
- `Match`, `identify` -- the version of a set of problems, and where it differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.tasks.kernelbench import ids
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.source import normalise

__all__ = ["VERSIONS", "Match", "content_hash", "digest", "identify"]

VERSIONS = ("v0", "v0.1", "v0.2")
"""KernelBench's published versions, oldest first."""

_TABLES = Path(__file__).with_name("versions.json")


def digest(source: str) -> str:
    """Return a digest of a problem's text, 12 hexadecimal digits. Blank lines and space at line ends do not count.

    >>> digest("x = 1  ") == digest("\\n\\nx = 1\\n\\n")
    True
    """
    lines = (line.rstrip() for line in normalise(source).split("\n"))
    text = "\n".join(line for line in lines if line)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def content_hash(sources: Mapping[str, str] | Iterable[Task]) -> str:
    """Return the SHA-256 of a set of problems: of their ids and digests, whatever order or file they come in.

    Args:
        sources: the problems, as tasks or as texts by task id.

    Raises:
        InvalidOptionError: if they are neither.

    >>> content_hash({"KernelBench/L1-001": "a", "KernelBench/L1-002": "b"})[:12]
    'e43d9c04150d'
    """
    lines = [f"{task_id} {digest(text)}\n" for task_id, text in sorted(_texts(sources).items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Match:
    """What version a set of problems is.

    Attributes:
        version: the version with the most problems in common, the later one of two that fit alike; ``""`` where no
            version shares half of the problems.
        exact: whether all problems are as in that version.
        also: further versions that fit as well, for a set without the problems that would tell.
        differing: ids of problems that are not as in that version.
    """

    version: str
    exact: bool
    also: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.version:
            return "no published version"
        name = " or ".join((*self.also, self.version))
        return name if self.exact else f"{name} but for {len(self.differing)} of them"


def identify(sources: Mapping[str, str] | Iterable[Task]) -> Match:
    """Return which published version some problems are.

    Args:
        sources: the problems, all or a part, as tasks or as texts by task id. Those that the tables do not know
            (level 4 before v0.2) say nothing for or against a version.

    Raises:
        InvalidOptionError: if they are neither.

    >>> identify({"KernelBench/L1-001": "class Model: ..."}).version
    ''
    """
    digests = {task_id: digest(text) for task_id, text in _texts(sources).items()}
    differing = {
        version: tuple(
            task_id for task_id in sorted(digests) if table.get(task_id, digests[task_id]) != digests[task_id]
        )
        for version, table in _tables().items()
    }
    compared = {version: len(digests.keys() & table.keys()) for version, table in _tables().items()}
    fewest = min(len(ids) for ids in differing.values())
    fitting = [version for version in VERSIONS if len(differing[version]) == fewest and compared[version]]
    if not fitting or 2 * fewest > compared[fitting[-1]]:
        return Match("", False)
    *also, version = fitting
    return Match(version, not fewest, tuple(also), differing[version])


def _texts(sources: Mapping[str, str] | Iterable[Task]) -> dict[str, str]:
    """Problems as texts by task id."""
    if isinstance(sources, Mapping):
        texts = dict(sources)
        if all(isinstance(text, str) for pair in texts.items() for text in pair):
            return texts
    elif isinstance(sources, Iterable) and not isinstance(sources, str):
        tasks = list(sources)
        if all(isinstance(task, Task) for task in tasks):
            return {task.id: task.source for task in tasks}
    raise InvalidOptionError(f"Problems are given as a list of tasks, or as texts by task id, got {sources!r:.200}.")


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, str]]:
    """The digests of each version by task id."""
    data = json.loads(_TABLES.read_text(encoding="utf-8"))
    return {
        version: {
            ids.make_id(int(level), number): value
            for level, values in levels.items()
            for number, value in enumerate(values, start=1)
        }
        for version, levels in data.items()
    }
