"""Tasks that come with the package, as a reference's file and what the file does not say.

- `Entry` -- what an index of a suite holds of one task.
- `packaged_task` -- the task of an entry of a suite's index.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernelgym_env.tasks.files import read_source
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.source import Number, constants

__all__ = ["Entry", "packaged_task"]


@dataclass(frozen=True)
class Entry:
    """A task of a suite, without its source.

    Attributes:
        name: its id after the suite's namespace.
        title: a few words.
        level: 1 single operators, 2 fused chains, 3 blocks of networks.
        description: one sentence.
        tags: words to select by.
        cpu: sizes at which an eager call on two CPU cores takes between 0.3 and 20 ms.
    """

    name: str
    title: str
    level: int
    description: str
    tags: tuple[str, ...]
    cpu: Mapping[str, Number] = field(hash=False)

    @property
    def file(self) -> str:
        """Stem of the reference's file: the name in snake case."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()


def packaged_task(
    task_id: str, entry: Entry, folder: Path, suite: str, *, input_laws: tuple[str, ...] | None = None
) -> Task:
    """Return the task of an entry.

    Args:
        task_id: its id.
        entry: its line in the index.
        folder: where the references lie.
        suite: the suite's name, which is its first tag.
        input_laws: see `Task`.
    """
    source = read_source(folder / f"{entry.file}.py")
    shipped = constants(source)
    return Task(
        id=task_id,
        source=source,
        title=entry.title,
        description=entry.description,
        level=entry.level,
        tags=(suite, *entry.tags),
        # The text has the GPU's sizes; written down, so that whoever lists sizes sees both.
        sizes={"cpu": entry.cpu, "cuda": {name: shipped[name] for name in entry.cpu}},
        origin=f"kernelgym_env suite {suite}, {entry.file}.py",
        licence="MIT",
        input_laws=input_laws,
    )
