"""Drawing tasks by a mix of levels instead of by how many tasks each level happens to have.

- `probabilities` -- how likely each task is under a mix.
- `is_weight`, `in_words` -- whether a value can be a weight, and how to speak of one that cannot.
- `addable` -- weights whose sum is finite.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.tasks.model import Task

__all__ = ["addable", "in_words", "is_weight", "probabilities"]

_DIGITS = 9
_BITS = 1024
_SHIFT = 64


def probabilities(tasks: Sequence[Task], level_mix: Mapping[int | str, float]) -> list[float]:
    """Return the probability of each task: that of its level, divided evenly among the level's tasks.

    Args:
        tasks: what is drawn from.
        level_mix: weights by level, in any unit. A level may be a text of digits, as JSON has it. Levels that are not
            named are not drawn.

    Returns:
        Numbers of at least 0 with the sum 1, one a task.

    Raises:
        UnknownNameError: for a level that none of the tasks has.
        InvalidOptionError: if it is no mapping, a weight is negative or no finite number, or all are 0.

    >>> from kernelgym_env.tasks import load_task
    >>> tasks = [load_task(f"KernelGym/{name}") for name in ("RowSum", "ColumnSum", "SwiGluMlp")]
    >>> [task.level for task in tasks]
    [1, 1, 2]
    >>> probabilities(tasks, {1: 3, 2: 1})
    [0.375, 0.375, 0.25]
    """
    if not isinstance(level_mix, Mapping) or not level_mix:
        raise InvalidOptionError(
            f"level_mix must map levels to weights, such as {{1: 2, 2: 1}}, got {level_mix!r:.200}."
        )
    counts = Counter(task.level for task in tasks)
    given: list[tuple[int, float]] = []
    for level, weight in level_mix.items():
        number = int(level) if isinstance(level, str) and level.isdecimal() and len(level) <= _DIGITS else level
        if isinstance(number, bool) or not isinstance(number, int) or number not in counts:
            raise unknown_name("level in level_mix", level, map(str, counts))
        if not is_weight(weight):
            raise InvalidOptionError(
                f"The weight of level {level} must be a finite number of at least 0, got {in_words(weight)}."
            )
        given.append((number, float(weight)))
    weights: dict[int, float] = {}
    for (number, _), weight in zip(given, addable([weight for _, weight in given]), strict=True):
        weights[number] = weights.get(number, 0.0) + weight
    total = sum(weights.values())
    if not total > 0:
        raise InvalidOptionError(f"level_mix needs a weight above 0, got {dict(level_mix)!r}.")
    return [weights.get(task.level, 0.0) / total / counts[task.level] for task in tasks]


def is_weight(value: object) -> bool:
    """Whether a value is a number of at least 0 that a float can hold."""
    return not isinstance(value, bool) and isinstance(value, (int, float)) and 0 <= value <= sys.float_info.max


def in_words(value: object) -> str:
    """A value for an error's text; an integer may have more digits than Python writes."""
    if isinstance(value, int) and value.bit_length() > _BITS:
        return "an integer too large for a float"
    return f"{value!r:.200}"


def addable(weights: Sequence[float]) -> list[float]:
    """Weights of the same shares whose sum is finite; those of a finite sum are returned as they are.

    >>> addable([1.0, 2.0]), addable([1e308, 1e308]) == [1e308 / 2**64] * 2
    ([1.0, 2.0], True)
    """
    return list(weights) if math.isfinite(sum(weights)) else [math.ldexp(weight, -_SHIFT) for weight in weights]
