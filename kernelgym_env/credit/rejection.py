"""Profiling-based rejection sampling (PRS): correct turns that hardly do any work themselves are dropped at random.

- `prs_probabilities` -- with which probability each turn is kept.
- `prs_sample` -- draws which are.

In KernelGYM a rejected turn gets no gradient, yet its reward still enters group baselines and the returns of earlier
turns. For that, multiply the loss by the sample. To leave it out of baselines as well, pass the sample as `mask` to
`kernelgym_env.credit.group_advantages`.
"""

from __future__ import annotations

import numpy as np

from kernelgym_env.credit._arrays import ArrayLike, Bools, Floats, bools, floats, is_number, rate, require_finite
from kernelgym_env.errors import InvalidOptionError, unknown_name

__all__ = ["prs_probabilities", "prs_sample"]

_LEVELS = ("turn", "geometric")


def prs_probabilities(
    coverage: ArrayLike,
    correct: ArrayLike,
    *,
    threshold: float = 0.3,
    softness: float = 0.1,
    level: str = "turn",
    unknown: float = 1.0,
    speedups: ArrayLike | None = None,
    speedup_threshold: float | None = None,
    mask: ArrayLike | None = None,
) -> Floats:
    """The probability with which each turn is kept.

    ``clip((coverage - threshold) / softness, 0, 1)`` for a correct turn, 1 for any other.

    Source: Dr. Kernel (HKUST, TikTok), threshold 0.3 and softness 0.1; KernelGYM's code for the levels and for what is
    kept in any case. The paper's formula makes no exception for wrong kernels; the code keeps them all, as is done
    here.

    Args:
        coverage: share of device time in own kernels, 0 to 1, NaN where unknown; shape [turns] or [..., turns].
        correct: same shape, whether the turn was credited.
        threshold: coverage up to which nothing is kept.
        softness: width of the rise, at least 0; with 0 what is above the threshold is kept, the rest is not.
        level: ``turn``, or ``geometric``: all correct turns of a row are kept with the probability that belongs to the
            geometric mean of their coverages.
        unknown: probability of a correct turn without a coverage, 0 to 1. In level ``geometric`` such a turn is left
            out of the mean, and `unknown` holds where none is left.
        speedups: same shape; only with `speedup_threshold`.
        speedup_threshold: a turn with at least this speedup is kept in any case; None (as released) for none.
        mask: same shape, False for turns that do not count; their probability is 0.

    Returns:
        float64 of the same shape.

    Raises:
        UnknownNameError: for an unknown level.
        InvalidOptionError: for shapes that do not fit, coverages outside 0 to 1, or options outside their range.

    >>> prs_probabilities([0.00014, 0.30, 0.33, 0.35, 0.40, 0.8615], [True] * 6).round(6).tolist()
    [0.0, 0.0, 0.3, 0.5, 1.0, 1.0]
    >>> prs_probabilities([0.0], [False]).tolist()
    [1.0]
    """
    if level not in _LEVELS:
        raise unknown_name("level of rejection", level, _LEVELS)
    rate(threshold, "threshold")
    if not is_number(softness) or not 0 <= softness < np.inf:
        raise InvalidOptionError(f"softness must be a number of at least 0, got {softness!r}.")
    share = floats(coverage, "coverage")
    if share.ndim == 0:
        raise InvalidOptionError("coverage must have an axis of turns, got a number.")
    right = bools(correct, "correct", share.shape)
    valid = bools(mask, "mask", share.shape)
    read = right & valid
    known = read & ~np.isnan(share)
    outside = known & ~((share >= 0) & (share <= 1))
    if outside.any():
        raise InvalidOptionError(f"coverage must be from 0 to 1 or NaN, got {share[outside][0]}.")
    if level == "geometric":
        share = _geometric_mean(share, known)
        known = read & ~np.isnan(share)
    with np.errstate(invalid="ignore", over="ignore"):
        rise = (share - threshold) / softness if softness > 0 else (share > threshold).astype(np.float64)
    kept = np.where(known, np.clip(rise, 0.0, 1.0), rate(unknown, "unknown"))
    if speedup_threshold is not None:
        if speedups is None:
            raise InvalidOptionError("speedup_threshold needs speedups.")
        kept = np.where(floats(speedups, "speedups", share.shape) >= speedup_threshold, 1.0, kept)
    return np.where(valid, np.where(right, kept, 1.0), 0.0)


def _geometric_mean(share: Floats, known: Bools) -> Floats:
    """Over the last axis, of what is known; NaN where nothing is; in the shape of `share`."""
    count = known.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(known, np.log(np.where(known, share, 1.0)), 0.0)  # of 0: minus infinity, a mean of 0
        mean = np.exp(logs.sum(axis=-1, keepdims=True) / count)
    return np.broadcast_to(np.where(count > 0, mean, np.nan), share.shape)


def prs_sample(
    probabilities: ArrayLike, rng: np.random.Generator | int, *, level: str = "turn", mask: ArrayLike | None = None
) -> Bools:
    """Draw which turns are kept.

    Args:
        probabilities: from `prs_probabilities`, shape [turns] or [..., turns].
        rng: a generator or a seed; the same state gives the same sample.
        level: ``turn`` draws for each turn, ``geometric`` once for each row, so that turns of equal probability are
            kept or dropped together.
        mask: same shape, False for turns that do not count; they are not kept.

    Returns:
        bool of the same shape, True for kept.

    Raises:
        UnknownNameError: for an unknown level.
        InvalidOptionError: for probabilities outside 0 to 1, or a mask of another shape.

    >>> prs_sample([0.0, 1.0, 0.5], rng=0).tolist()
    [False, True, True]
    """
    if level not in _LEVELS:
        raise unknown_name("level of rejection", level, _LEVELS)
    keep = floats(probabilities, "probabilities")
    if keep.ndim == 0:
        raise InvalidOptionError("probabilities must have an axis of turns, got a number.")
    valid = bools(mask, "mask", keep.shape)
    require_finite(keep, valid, "probabilities")
    outside = valid & ((keep < 0) | (keep > 1))
    if outside.any():
        raise InvalidOptionError(f"probabilities must be from 0 to 1, got {keep[outside][0]}.")
    draws = np.random.default_rng(rng).random(keep.shape if level == "turn" else (*keep.shape[:-1], 1))
    return (draws < keep) & valid
