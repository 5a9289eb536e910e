"""Rewards that no published system has: logarithm, roofline, improvement."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.rewards._parts import NEUTRAL, finite, number_or
from kernelgym_env.rewards.published import kevin

__all__ = ["improvement", "log_speedup", "roofline_fraction"]


def log_speedup(
    evaluation: Evaluation, *, base: float = 2.0, low: float = -3.0, high: float = 5.0, failed: float = -4.0
) -> float:
    """The logarithm of the speedup, kept between `low` and `high`; `failed` if not correct.

    With the default base each doubling adds 1 and the reference's own speed pays 0, so a slow kernel costs what a fast
    one earns, and means over tasks are logarithms of geometric means. A speed that was not measured pays `low`.

    Deterministic given the evaluation; range `failed` to `high`. `fault` and `task_invalid` pay 0.0.

    Source: this package.

    Args:
        evaluation: the verdict.
        base: of the logarithm, above 1.
        low: least reward of a correct submission.
        high: greatest reward.
        failed: reward of one that is not correct, at most `low`.

    Raises:
        InvalidOptionError: for a base of at most 1, or values that do not satisfy ``failed <= low <= high``.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> [log_speedup(Evaluation("a/b", Status.CORRECT, speedup=s)) for s in (0.5, 1.0, 8.0, 1000.0)]
    [-1.0, 0.0, 3.0, 5.0]
    >>> log_speedup(Evaluation("a/b", Status.WRONG))
    -4.0
    """
    if not 1 < base < math.inf:
        raise InvalidOptionError(f"log_speedup needs a base above 1, got {base!r}.")
    finite("log_speedup", low=low, high=high, failed=failed)
    if not failed <= low <= high:
        raise InvalidOptionError(f"log_speedup needs failed <= low <= high, got {failed!r}, {low!r}, {high!r}.")
    if evaluation.status in NEUTRAL:
        return 0.0
    if not evaluation.credited:
        return float(failed)
    if not evaluation.speedup > 0:  # NaN as well
        return float(low)
    octaves = math.log2(evaluation.speedup)
    return float(min(max(octaves if base == 2 else octaves / math.log2(base), low), high))


def roofline_fraction(evaluation: Evaluation) -> float:
    """How much of the device's limit is reached: floor time / own time, at most 1; 0 if not correct.

    The floor is the least time in which the task's bytes and operations fit on the device. Unlike a speedup it does not
    depend on how slow the reference is. Times that were not both measured pay 0.

    Deterministic given the evaluation; range 0 to 1.

    Source: this package.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status, Timing
    >>> times = {"candidate": Timing(50.0), "floor": Timing(20.0)}
    >>> roofline_fraction(Evaluation("a/b", Status.CORRECT, times=times))
    0.4
    """
    if not evaluation.credited:
        return 0.0
    return min(max(number_or(evaluation.roofline_fraction, 0.0), 0.0), 1.0)


def improvement(
    evaluation: Evaluation, best_before: float = 0.0, *, score: Callable[[Evaluation], float] = kevin
) -> float:
    """What a turn adds to the best score so far: ``max(0, score(evaluation) - best_before)``.

    Carry the best on with ``best = max(best, score(evaluation))``. The rewards of an episode then add up to its best
    score less the first `best_before` (gamma 1), so that only the best kernel counts and repeating it pays nothing.

    Deterministic given the evaluation, `best_before` and `score`; range 0 to that of `score`. `fault` and
    `task_invalid` pay 0.0, whatever `best_before` is; do not carry their score on.

    Source: this package. The objective is that of Kevin's and CUDA Agent's evaluation, which take a trajectory's
    fastest kernel. `kernelgym_env.credit.improvements` does the same for a finished episode.

    Args:
        evaluation: the verdict.
        best_before: best score of the earlier turns. Start with 0.0, or with what a failure pays where that is less.
        score: the reward whose best is sought.

    Raises:
        InvalidOptionError: if `best_before` is NaN.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> best = 0.0
    >>> for speedup in (1.25, 1.0, 2.25):
    ...     evaluation = Evaluation("a/b", Status.CORRECT, speedup=speedup)
    ...     print(round(improvement(evaluation, best), 6))
    ...     best = max(best, kevin(evaluation))
    1.55
    0.0
    1.0
    """
    if math.isnan(best_before):
        raise InvalidOptionError("improvement needs a number for best_before, got NaN. Start with 0.0.")
    if evaluation.status in NEUTRAL:
        return 0.0
    return max(0.0, float(score(evaluation)) - float(best_before))
