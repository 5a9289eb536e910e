"""Tasks by the hundred, none of them near one of KernelBench or like another.

- `generate` -- tasks from a seed.
- `nearest` -- the problem of KernelBench that is most like a reference.
- `NEAR` -- from which similarity on a task is a near-duplicate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.synth.compose import DEFAULT_MIX, check_mix, compose
from kernelgym_env.tasks.synth.operators import operators_named
from kernelgym_env.tasks.synth.signature import signature, similarity

__all__ = ["NEAR", "generate", "nearest"]

NEAR = 0.9
"""A reference that is more similar than this is a near-duplicate; the bound that CUDA Agent's tasks were held to."""

_TABLE = Path(__file__).with_name("kernelbench.json")
_TRIES = 60
"""Draws for each task that is asked for, before the operators count as used up."""


def generate(
    count: int, seed: int = 0, *, operators: Iterable[str] | None = None, mix: Mapping[int, float] = DEFAULT_MIX
) -> list[Task]:
    """Compose tasks; the same arguments give the same tasks on every machine.

    No two have the same operators in the same order, and none is a near-duplicate of a problem of KernelBench. Nothing
    is run: `kernelgym_env.tasks.synth.sift` finds out which of them work and are worth solving on a device.

    Args:
        count: how many.
        seed: which.
        operators: names of `kernelgym_env.tasks.synth.OPERATORS` to compose them of; None takes all.
        mix: weights by number of operators, 1 to 5.

    Raises:
        UnknownNameError: for an unknown operator.
        InvalidOptionError: for a count, seed or mix outside its range, or where the operators allow fewer tasks.

    >>> [task.title for task in generate(2, seed=3)] == [task.title for task in generate(3, seed=3)[:2]]
    True
    """
    for name, value in (("count", count), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < (name == "count"):
            raise InvalidOptionError(f"{name} must be an integer of at least {int(name == 'count')}, got {value!r}.")
    chosen, mix = operators_named(operators), check_mix(mix)
    found: list[Task] = []
    seen: set[tuple[str, ...]] = set()
    misses = 0
    number = 0
    while len(found) < count:
        task = compose(seed, number, chosen, mix)
        number += 1
        # the names of operators tell apart what a signature does not: a sum of rows from one of columns, say
        names = () if task is None else task.tags[2:]
        if task is None or names in seen or nearest(task.source)[1] > NEAR:
            misses += 1
            if misses > _TRIES * count:
                raise InvalidOptionError(
                    f"Out of {len(chosen)} operators came {len(found)} tasks that are new, asked for were {count}. "
                    "Allow more operators, or more of them in a task."
                )
            continue
        seen.add(names)
        found.append(task)
    return found


def nearest(source: str) -> tuple[str, float]:
    """The problem of KernelBench that a reference is most like, by `similarity` of their operators, and how much.

    The operators of the problems of levels 1 to 3 come with the package; networks that are built in loops are known in
    part, and longer ones than any generated task are left out.

    Args:
        source: the reference.

    Returns:
        A task id and a number from 0 to 1; ``("", 0.0)`` if it is like none.

    Raises:
        SyntaxError: if the source is not Python.

    >>> nearest("class Model:\\n    def forward(self, a, b):\\n        return a @ b\\n")
    ('KernelBench/L1-001', 1.0)
    """
    found = signature(source)
    best = ("", 0.0)
    for task_id, known in _known().items():
        shorter, longer = sorted((len(found), len(known)))
        if 2 * shorter <= best[1] * (shorter + longer):
            continue  # it cannot be more similar than that
        score = similarity(found, known)
        if score > best[1]:
            best = (task_id, score)
    return best


@cache
def _known() -> Mapping[str, tuple[str, ...]]:
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    return {task_id: tuple(words.split()) for task_id, words in table["operators"].items()}
