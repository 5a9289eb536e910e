"""Choosing tasks by what they are.

- `Listed` -- what a task is chosen by.
- `select` -- those that have all that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.tasks.model import ENV_VERSION

__all__ = ["Listed", "select"]


class Listed(Protocol):
    """Something with the id, level and tags of a task, such as a `Task`."""

    @property
    def id(self) -> str:
        """``Namespace/Name``."""

    @property
    def level(self) -> int:
        """0 where it has none."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Words to select by; categories are among them."""


T = TypeVar("T", bound=Listed)


def select(
    tasks: Iterable[T], *, ids: Sequence[str] = (), levels: Sequence[int] = (), tags: Sequence[str] = ()
) -> list[T]:
    """Return the tasks that have all that is asked for, in the order they come in.

    Args:
        tasks: what to choose from.
        ids: ids or patterns such as ``KernelBench/L1-0*``, of which a task needs to fit one; ``-v0`` may follow.
        levels: levels, of which it needs to have one.
        tags: tags, of which it needs to have each. A category is a tag: ``matmul``.

    Raises:
        UnknownNameError: for an id, level or tag that none of the tasks has.
        InvalidOptionError: for a text where several are expected.

    >>> from kernelgym_env.tasks import load_tasks
    >>> [task.id for task in select(load_tasks("core"), levels=[1], tags=["matmul", "norm"])]
    []
    """
    for name, given in (("ids", ids), ("tags", tags)):
        if isinstance(given, str):
            raise InvalidOptionError(f"{name} must be a list of texts, got {given!r}; write [{given!r}].")
    listed = list(tasks)
    patterns = [pattern.removesuffix(ENV_VERSION) for pattern in ids]
    for pattern, given in zip(patterns, ids, strict=True):
        if not any(fnmatchcase(task.id, pattern) for task in listed):
            raise unknown_name("task id or pattern", given, {task.id for task in listed})
    for level in levels:
        if all(task.level != level for task in listed):
            raise unknown_name("level", str(level), {str(task.level) for task in listed})
    for tag in tags:
        if all(tag not in task.tags for task in listed):
            raise unknown_name("tag", tag, {known for task in listed for known in task.tags})
    return [
        task
        for task in listed
        if (not patterns or any(fnmatchcase(task.id, pattern) for pattern in patterns))
        and (not levels or task.level in levels)
        and set(tags) <= set(task.tags)
    ]
