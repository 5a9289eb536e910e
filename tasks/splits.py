"""Dividing tasks into those to train on and those held out.

- `Split` -- the two halves.
- `split` -- a division by seed, with the same share of each level.
"""

from __future__ import annotations

import hashlib
import numbers
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.tasks.model import Task

__all__ = ["Split", "split"]


@dataclass(frozen=True)
class Split:
    """Task ids to train on and to hold out, each in the order they were given in."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]


def split(
    ids: Iterable[str | Task], held_out: int, *, seed: int = 0, group: Callable[[str], object] | None = None
) -> Split:
    """Return a division of some tasks.

    The choice depends on the seed and each id's text alone: it is the same on every machine and release, and a task
    that is added moves few others from one half to the other.

    Args:
        ids: task ids, or tasks, of which the ids count; each once.
        held_out: how many to hold out, 1 to one less than there are.
        seed: which division.
        group: what a task id belongs to, such as its level; each group gives the same share, as far as whole numbers
            allow. None takes all as one group.

    Raises:
        InvalidOptionError: for a number that is out of range, a seed that is no integer, an id that comes twice, or
            something that is neither an id nor a task.

    >>> split(["A/a", "A/b", "B/a", "B/b"], 2, seed=1, group=lambda task_id: task_id[0])
    Split(train=('A/b', 'B/b'), held_out=('A/a', 'B/a'))
    """
    if isinstance(ids, (str, Task)):
        raise InvalidOptionError(f"A split divides a list of task ids or tasks, got {ids!r:.200}.")
    listed = tuple(_id(given) for given in ids)
    if len(set(listed)) < len(listed):
        twice = next(task_id for task_id in listed if listed.count(task_id) > 1)
        raise InvalidOptionError(f"A split needs each task once, and {twice!r} comes more often.")
    if not _integer(held_out) or not 1 <= held_out < len(listed):
        raise InvalidOptionError(
            f"held_out must be an integer from 1 to {len(listed) - 1} for {len(listed)} tasks, got {held_out!r}."
        )
    if not _integer(seed):
        raise InvalidOptionError(f"The seed of a split must be an integer, got {seed!r}.")
    groups: dict[object, list[str]] = defaultdict(list)
    for task_id in listed:
        groups[group(task_id) if group else None].append(task_id)
    chosen: set[str] = set()
    for members, count in zip(groups.values(), _shares([len(g) for g in groups.values()], held_out), strict=True):
        chosen.update(sorted(members, key=lambda task_id: _order(task_id, seed))[:count])
    return Split(
        tuple(task_id for task_id in listed if task_id not in chosen),
        tuple(task_id for task_id in listed if task_id in chosen),
    )


def _id(given: str | Task) -> str:
    if isinstance(given, Task):
        return given.id
    if not isinstance(given, str):
        raise InvalidOptionError(f"A split divides task ids or tasks, and {given!r:.200} is neither.")
    return given


def _integer(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _order(task_id: str, seed: int) -> str:
    return hashlib.sha256(f"{int(seed)}:{task_id}".encode()).hexdigest()


def _shares(sizes: list[int], total: int) -> list[int]:
    """`total` divided among groups by their sizes; what rounding leaves goes to the largest remainders."""
    exact = [size * total / sum(sizes) for size in sizes]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda index: shares[index] - exact[index])
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares
