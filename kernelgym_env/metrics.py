"""Figures over a fixed set of tasks.

Every task of the set counts, whether it was solved or not: leaving out what failed turns a weak policy into a strong
one. A speedup of NaN stands for a task without a correct submission. Faults do not belong in the set.

- `fast_p` -- share of tasks solved at more than p times the baseline's speed (KernelBench).
- `geomean` -- typical speedup of those that were solved.
- `correctness` -- share of tasks with a correct submission, timed or not.
- `pass_at_k`, `best_at_k`, `avg_at_k` -- of one task, from n samples; the first two are `kernelgym_env.credit`'s.
- `Interval`, `bootstrap` -- a figure with its interval over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kernelgym_env.credit import best_at_k, pass_at_k

__all__ = ["Interval", "avg_at_k", "best_at_k", "bootstrap", "correctness", "fast_p", "geomean", "pass_at_k"]

T = TypeVar("T")


def fast_p(speedups: Any, p: float, *, strict: bool = True) -> float:
    """Share of tasks with a correct submission that is more than `p` times as fast as the baseline (KernelBench, §3).

    Args:
        speedups: one a task, shape [tasks]; NaN where nothing was correct. At least one.
        p: the threshold, at least 0; at 0 the share of correct ones.
        strict: whether exactly `p` is not enough, as published; False counts it.

    Returns:
        Between 0 and 1.

    Raises:
        ValueError: without tasks, for a negative speedup, or a threshold that is negative or NaN.

    >>> fast_p([1.0, 1.2, 2.0, float("nan")], 1.0)
    0.5
    >>> fast_p([1.0, 1.2, 2.0, float("nan")], 1.0, strict=False)
    0.75
    """
    values = _speedups(speedups)
    if not p >= 0:
        raise ValueError(f"fast_p needs a threshold of at least 0, got {p!r}.")
    with np.errstate(invalid="ignore"):
        fast = values > p if strict else values >= p
    return float(np.mean(fast))


def geomean(speedups: Any) -> float:
    """Geometric mean of the speedups of the tasks that were solved, NaN where none was.

    Ratios are averaged in logs: 2x and 0.5x make 1x. It says nothing about how many were solved, so tell it together
    with `fast_p`.

    Args:
        speedups: as for `fast_p`; those that are NaN are left out.

    Raises:
        ValueError: without tasks, or for a negative speedup.

    >>> round(geomean([20, 1.3]), 3)
    5.099
    """
    values = _speedups(speedups)
    solved = values[~np.isnan(values)]
    if not solved.size:
        return math.nan
    with np.errstate(divide="ignore"):
        return float(np.exp(np.mean(np.log(solved))))


def correctness(correct: Any) -> float:
    """Share of tasks that were solved.

    Args:
        correct: one truth value a task, or the share of its samples that are correct, 0 to 1. At least one.

    Raises:
        ValueError: without tasks, or for a share outside of 0 to 1.

    >>> correctness([True, True, True, False])
    0.75
    """
    values = np.asarray(correct, dtype=float).reshape(-1)
    if not values.size:
        raise ValueError("No tasks: a share of none has no value.")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"A share of correct samples is from 0 to 1, got {values.tolist()!r:.200}.")
    return float(values.mean())


def avg_at_k(scores: Any, k: int) -> float:
    """The expected mean score of k samples drawn from n without replacement: the mean of all n, whatever k is.

    Source: Kevin (Cognition, Stanford), avg@k: the mean over k trajectories of what each reached.

    Args:
        scores: shape [n], 0 for a sample that failed.
        k: number of samples, 1 to n.

    Raises:
        InvalidOptionError: as `best_at_k` does.

    >>> avg_at_k([0, 0, 1.3, 1.8], 4)
    0.775
    """
    best_at_k(scores, k)  # refuses what is no k and no scores
    return best_at_k(scores, 1)


class Interval(NamedTuple):
    """A figure with an interval.

    Attributes:
        value: of the tasks as they are; NaN where it has none.
        low: lower end, NaN where there is none.
        high: upper end.
    """

    value: float
    low: float
    high: float


def bootstrap(
    tasks: Sequence[T],
    figure: Callable[[Sequence[T]], float],
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """A figure over a set of tasks, with a percentile bootstrap interval: tasks are drawn again, with replacement.

    It says how much the figure would move with another draw of tasks like these. It holds nothing of the noise of a
    single measurement, and with few tasks (below about 10) it is too narrow. Resamples in which the figure has no
    value (NaN, e.g. a geometric mean where nothing was solved) are left out. A single task has no interval: each draw
    of it is the same.

    Source: Efron 1979; the percentile interval.

    Args:
        tasks: what is known of each task; at least one.
        figure: from such a list to a number.
        level: coverage that the interval aims at, above 0 and below 1.
        resamples: number of draws, at least 1.
        seed: of the draws; the same seed gives the same interval.

    Raises:
        ValueError: without tasks, or for a level or a number of resamples outside its range.

    >>> bootstrap([1.0, 1.0, 1.0], lambda values: sum(values) / len(values))
    Interval(value=1.0, low=1.0, high=1.0)
    """
    if not len(tasks):
        raise ValueError("No tasks: a figure over none has no interval.")
    if not 0 < level < 1:
        raise ValueError(f"The level of an interval is above 0 and below 1 (e.g. 0.95), got {level!r}.")
    if resamples < 1:
        raise ValueError(f"A bootstrap needs at least 1 resample, got {resamples!r}.")
    value = float(figure(tasks))
    if len(tasks) < 2 or math.isnan(value):
        return Interval(value, math.nan, math.nan)
    draws = np.random.default_rng(seed).integers(len(tasks), size=(resamples, len(tasks)))
    found = np.array([figure([tasks[place] for place in draw]) for draw in draws], dtype=float)
    found = found[~np.isnan(found)]
    if not found.size:
        return Interval(value, math.nan, math.nan)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], method="nearest")
    return Interval(value, float(low), float(high))


def _speedups(speedups: Any) -> np.ndarray:
    values = np.asarray(speedups, dtype=float).reshape(-1)
    if not values.size:
        raise ValueError("No tasks: a share of none has no value.")
    if (values < 0).any():
        raise ValueError(f"A speedup is at least 0, got {values[values < 0][0]!r}.")
    return values
