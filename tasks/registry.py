"""The suites of tasks and the ids in them.

- `Suite` -- a named, ordered set of ids and the function that loads one.
- `suites` -- all of them.
- `task_ids` -- ids of one suite, of a part of one, or of all.
- `is_suite`, `is_task_id` -- whether a name is one of theirs.
- `find_task` -- the task with an id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernelgym_env.errors import unknown_name
from kernelgym_env.tasks import core, kernelbench, rl
from kernelgym_env.tasks.model import ENV_VERSION, Task

__all__ = ["Suite", "find_task", "is_suite", "is_task_id", "suites", "task_ids"]


@dataclass(frozen=True)
class Suite:
    """A set of tasks.

    Attributes:
        name: how it is asked for.
        title: one sentence.
        ids: its task ids in order, known without any data.
        load: the task with one of these ids; raises `MissingDataError` where its data is not on this machine.
        parts: names of subsets, with their ids.
    """

    name: str
    title: str
    ids: tuple[str, ...] = field(repr=False)
    load: Callable[[str], Task] = field(repr=False)
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False, hash=False)


_SUITES = (
    Suite("core", "Original tasks that come with the package, sized for CPU and GPU.", core.IDS, core.load),
    Suite("rl", "What training by reinforcement learning computes, sized for CPU and GPU.", rl.IDS, rl.load),
    Suite(
        "kernelbench",
        "The 270 problems of KernelBench, read from KERNELBENCH_DIR or from what was fetched.",
        kernelbench.IDS,
        kernelbench.load,
        kernelbench.PARTS,
    ),
)
_OWNERS = {task_id: suite for suite in _SUITES for task_id in suite.ids}
_NAMED = {suite.name: suite.ids for suite in _SUITES} | {
    part: ids for suite in _SUITES for part, ids in suite.parts.items()
}


def suites() -> tuple[Suite, ...]:
    """Return every suite."""
    return _SUITES


def task_ids(suite: str | None = None) -> list[str]:
    """Return the ids of a suite (``core``), of a part of one (``KernelBench/L1``), or of all suites.

    Raises:
        UnknownNameError: for another name.
    """
    if suite is None:
        return list(_OWNERS)
    if suite not in _NAMED:
        raise unknown_name("suite", suite, _NAMED)
    return list(_NAMED[suite])


def is_suite(name: str) -> bool:
    """Whether a suite or a part of one has exactly this name."""
    return name in _NAMED


def is_task_id(name: str) -> bool:
    """Whether this is a suite's task id, with or without ``-v0``."""
    return name.removesuffix(ENV_VERSION) in _OWNERS


def find_task(task_id: str) -> Task:
    """Return the suite task with that id, which may end in ``-v0``.

    Raises:
        UnknownNameError: for any other id, with what may have been meant. Letter case counts.
        MissingDataError: if the task's data is not on this machine.
    """
    bare = task_id.removesuffix(ENV_VERSION)
    if bare in _OWNERS:
        return _OWNERS[bare].load(bare)
    version = re.search(r"-v\d+$", task_id)
    if version and task_id[: version.start()] in _OWNERS:
        bare = task_id[: version.start()]
        raise unknown_name(f"version of task {bare}", version[0][1:], [ENV_VERSION[1:]])
    # Ids of the same suite are the likelier meaning.
    prefix = bare.partition("/")[0].lower() + "/"
    near = [known for known in _OWNERS if known.lower().startswith(prefix)]
    part = f" --suite {_OWNERS[near[0]].name}" if near else ""
    raise unknown_name("task id", bare, near or [*_OWNERS, *_NAMED], see=f"`kernelgym tasks{part}` lists the ids.")
