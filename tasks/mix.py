"""Drawing tasks by a mix of levels instead of by how many tasks each level happens to have.

- `probabilities` -- how likely each task is under a mix.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.tasks.model import Task

__all__ = ["probabilities"]


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
    weights: dict[int, float] = {}
    for level, weight in level_mix.items():
        number = int(level) if isinstance(level, str) and level.isdecimal() else level
        if isinstance(number, bool) or number not in counts:
            raise unknown_name("level in level_mix", level, map(str, counts))
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight) or weight < 0:
            raise InvalidOptionError(
                f"The weight of level {level} must be a finite number of at least 0, got {weight!r}."
            )
        assert isinstance(number, int)
        weights[number] = weights.get(number, 0.0) + float(weight)
    total = sum(weights.values())
    if not total > 0:
        raise InvalidOptionError(f"level_mix needs a weight above 0, got {dict(level_mix)!r}.")
    return [weights.get(task.level, 0.0) / total / counts[task.level] for task in tasks]
