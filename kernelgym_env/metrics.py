"""Figures over a fixed set of tasks.

Every task of the set counts, whether it was solved or not: leaving out what failed turns a weak policy into a strong
one. A speedup of NaN stands for a task without a correct submission. Faults do not belong in the set.

- `fast_p` -- share of tasks solved at more than p times the baseline's speed (KernelBench).
- `geomean` -- typical speedup of those that were solved.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["fast_p", "geomean"]


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


def _speedups(speedups: Any) -> np.ndarray:
    values = np.asarray(speedups, dtype=float).reshape(-1)
    if not values.size:
        raise ValueError("No tasks: a share of none has no value.")
    if (values < 0).any():
        raise ValueError(f"A speedup is at least 0, got {values[values < 0][0]!r}.")
    return values
