"""Unbiased estimates of what the best of k samples reaches, from n samples."""

from __future__ import annotations

import math
import operator

import numpy as np

from kernelgym_env.credit._arrays import ArrayLike, bools, floats, require_finite
from kernelgym_env.errors import InvalidOptionError

__all__ = ["best_at_k", "pass_at_k"]


def _whole(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidOptionError(f"{name} must be a whole number, got {value!r:.100}.") from None


def best_at_k(scores: ArrayLike, k: int) -> float:
    """The expected best score of k samples drawn without replacement: unbiased for k fresh samples.

    With the scores in rising order x_1 … x_n it is the sum over i of C(i-1, k-1) · x_i / C(n, k). ``k=1`` is the mean,
    ``k=n`` the best.

    Source: Kevin (Cognition, Stanford), best@k of its scaling curves; the estimator is that of pass@k.

    Args:
        scores: shape [n], one for each sample or trajectory (0 for one that failed).
        k: number of samples, 1 to n.

    Raises:
        InvalidOptionError: for a k that is no whole number from 1 to n, or scores that are not finite or not of one
            axis.

    >>> [round(best_at_k([0, 0, 1.3, 1.8], k), 5) for k in (1, 2, 3, 4)]
    [0.775, 1.33333, 1.675, 1.8]
    """
    values = floats(scores, "scores")
    if values.ndim != 1:
        raise InvalidOptionError(f"scores must have the shape [n], got {values.shape}.")
    require_finite(values, bools(None, "mask", values.shape), "scores")
    n = len(values)
    k = _whole("k", k)
    if not 1 <= k <= n:
        raise InvalidOptionError(f"k must be from 1 to the number of scores ({n}), got {k!r}.")
    rising = np.sort(values)
    terms, weight = [], k / n  # the share of subsets in which the greatest is the best; then downwards
    for rank in range(n, k - 1, -1):
        terms.append(weight * float(rising[rank - 1]))
        weight *= (rank - k) / (rank - 1) if rank > 1 else 0.0
    return math.fsum(terms)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """The probability that at least one of k samples is correct, from `correct` of n: ``1 - C(n-c, k) / C(n, k)``.

    Source: Chen et al. 2021 (Codex), section 2.1.

    Args:
        n: number of samples.
        correct: how many of them are correct, 0 to n.
        k: number of samples drawn, 1 to n.

    Raises:
        InvalidOptionError: for what is no whole number, or outside these ranges.

    >>> pass_at_k(16, 3, 8)
    0.9
    """
    n, correct, k = _whole("n", n), _whole("correct", correct), _whole("k", k)
    if not 1 <= k <= n:
        raise InvalidOptionError(f"k must be from 1 to n ({n}), got {k!r}.")
    if not 0 <= correct <= n:
        raise InvalidOptionError(f"correct must be from 0 to n ({n}), got {correct!r}.")
    total = math.comb(n, k)
    return (total - math.comb(n - correct, k)) / total
