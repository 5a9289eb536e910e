"""The trainer's log-probabilities against those of the engine that generated the tokens.

The two differ by rounding and kernels even with equal weights, and rare tokens make the ratio
``rho = p_train / p_rollout`` explode.

- `mrs_mask` -- mismatch rejection sampling: which tokens are kept.
- `tis_weights` -- truncated importance weights.
- `mismatch_metrics` -- KL, chi-square, effective sample size, perplexities.

All take the log-probability of each token under trainer and engine, shape [tokens] of one sequence or [..., tokens].
"""

from __future__ import annotations

import math

import numpy as np

from kernelgym_env.credit._arrays import ArrayLike, Bools, Floats, Ints, bools, floats, integers, is_number
from kernelgym_env.errors import InvalidOptionError, unknown_name

__all__ = ["LEVELS", "mismatch_metrics", "mrs_mask", "tis_weights"]

LEVELS = {
    "token": (0.5, 2.0),
    "turn": (0.5, 2.0),
    "turn_geometric": (0.999, 1.001),
    "sequence": (0.5, 2.0),
    "geometric": (0.999, 1.001),
}
"""Over what the ratio is taken, and the default bounds of `mrs_mask`.

``turn`` and ``sequence`` multiply the tokens' ratios, ``turn_geometric`` and ``geometric`` (of a sequence) take their
geometric mean. The narrow bounds are Dr. Kernel's, the wide ones verl's threshold of 2 and its reciprocal.
"""

_CLAMP = 20.0
"""Greatest absolute logarithm of a ratio before the exponential, as verl and KernelGYM have it."""


def mrs_mask(
    train: ArrayLike,
    rollout: ArrayLike,
    *,
    level: str = "geometric",
    low: float | None = None,
    high: float | None = None,
    veto: float = 1e-4,
    veto_level: str = "sequence",
    turns: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> Bools:
    """Which tokens are kept: those whose token, turn or sequence has a ratio from `low` to `high`, and no vetoed token.

    Source: Dr. Kernel (HKUST, TikTok): keeps a sequence whose geometric-mean ratio is in [0.999, 1.001], unless the
    ratio of any token is below 1e-4. In KernelGYM's code such a token vetoes its turn (``veto_level="turn"``), in verl
    the sequence.

    Args:
        train: log-probabilities under the trainer, minus infinity allowed.
        rollout: log-probabilities under the engine, same shape.
        level: one of `LEVELS`.
        low: least ratio kept; None is the level's default.
        high: greatest ratio kept; None is the level's default.
        veto: a token with a ratio below it vetoes its `veto_level`; 0 for no veto.
        veto_level: ``token``, ``turn`` or ``sequence``.
        turns: the turn of each token, whole numbers of the same shape; needed for the levels of turns.
        mask: same shape, False for tokens that do not count (prompt, feedback, padding). They are not kept.

    Returns:
        bool of the same shape, True for kept.

    Raises:
        UnknownNameError: for an unknown level.
        InvalidOptionError: for shapes that do not fit, log-probabilities that are none, bounds that do not satisfy
            ``0 <= low <= high``, or a level of turns without `turns`.

    >>> rollout = [[-1.0, -2.0], [-1.0, -2.0]]
    >>> mrs_mask([[-1.0, -2.0005], [-1.0, -2.1]], rollout).tolist()
    [[True, True], [False, False]]
    """
    if veto_level not in ("token", "turn", "sequence"):
        raise unknown_name("level of the veto", veto_level, ("token", "turn", "sequence"))
    log_ratio, valid = _log_ratios(train, rollout, mask)
    _check_level(level)
    low, high = LEVELS[level][0] if low is None else low, LEVELS[level][1] if high is None else high
    if not (is_number(low) and is_number(high) and 0 <= low <= high):
        raise InvalidOptionError(f"mrs_mask needs 0 <= low <= high, got {low!r} and {high!r}.")
    if not is_number(veto) or not 0 <= veto < math.inf:
        raise InvalidOptionError(f"veto must be a ratio of at least 0, got {veto!r}.")
    whole = _aggregated(log_ratio, valid, level, turns)
    kept = valid & (whole >= _log(low)) & (whole <= _log(high))
    if veto > 0:
        kept &= ~_any((log_ratio < _log(veto)) & valid, _units(veto_level, turns, valid.shape))
    return kept


def tis_weights(
    train: ArrayLike,
    rollout: ArrayLike,
    *,
    level: str = "token",
    cap: float = 2.0,
    turns: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> Floats:
    """Truncated importance weights ``min(rho, cap)``, to be multiplied with the loss as constants.

    Source: FlashRL and verl (token and sequence), KernelGYM with the cap 2.

    Args:
        train: log-probabilities under the trainer.
        rollout: log-probabilities under the engine, same shape.
        level: one of `LEVELS`; each token has the weight of its token, turn or sequence.
        cap: greatest weight, positive; infinity for none (the ratio itself stays below e^20).
        turns: see `mrs_mask`.
        mask: see `mrs_mask`.

    Returns:
        float64 of the same shape, 0 where `mask` is False.

    Raises:
        UnknownNameError: for an unknown level.
        InvalidOptionError: for a cap that is not positive, and as `mrs_mask`.

    >>> tis_weights([-1.0, -1.0], [-1.0, -3.0]).tolist()
    [1.0, 2.0]
    """
    if not is_number(cap) or not cap > 0:
        raise InvalidOptionError(f"cap must be positive, got {cap!r}.")
    log_ratio, valid = _log_ratios(train, rollout, mask)
    _check_level(level)
    whole = np.clip(_aggregated(log_ratio, valid, level, turns), -np.inf, _CLAMP)
    return np.where(valid, np.minimum(np.exp(whole), cap), 0.0)


def mismatch_metrics(train: ArrayLike, rollout: ArrayLike, *, mask: ArrayLike | None = None) -> dict[str, float]:
    """How far trainer and engine are apart.

    Args:
        train: log-probabilities under the trainer.
        rollout: log-probabilities under the engine, same shape.
        mask: see `mrs_mask`.

    Returns:
        A dict of floats, NaN where no token counts:

        - ``tokens``: number of tokens that count.
        - ``kl``: mean of -log rho, which estimates KL(rollout ‖ train) and may come out negative.
        - ``k3``: mean of rho - 1 - log rho, another estimate of it, never negative.
        - ``chi2``: mean of rho² - 1, an estimate of the chi-square divergence.
        - ``ess``: effective sample size of the tokens' ratios, (sum rho)² / (n · sum rho²), as a share, up to 1.
        - ``ratio_min``, ``ratio_max``: least and greatest rho.
        - ``ppl_train``, ``ppl_rollout``: perplexities of the tokens.
        - ``ppl_ratio``: ppl_train / ppl_rollout = exp(kl).

        Means are over all tokens that count, not over sequences first. In ratios the logarithm is kept within ±20.

    Raises:
        InvalidOptionError: for shapes that do not fit or log-probabilities that are none.

    >>> metrics = mismatch_metrics([-1.0, -2.0], [-1.0, -2.0])
    >>> metrics["kl"], metrics["ess"], metrics["ppl_ratio"]
    (0.0, 1.0, 1.0)
    """
    log_ratio, valid = _log_ratios(train, rollout, mask)
    logs = np.clip(log_ratio[valid], -_CLAMP, _CLAMP)
    engine = floats(rollout, "rollout")[valid]
    if not logs.size:
        names = ("kl", "k3", "chi2", "ess", "ratio_min", "ratio_max", "ppl_train", "ppl_rollout", "ppl_ratio")
        return {"tokens": 0.0, **dict.fromkeys(names, math.nan)}
    ratios = np.exp(logs)
    kl = 0.0 - float(logs.mean())  # not -0.0
    return {
        "tokens": float(logs.size),
        "kl": kl,
        "k3": float(np.mean(np.expm1(logs) - logs)),
        "chi2": float(np.mean(ratios**2) - 1.0),
        "ess": float(ratios.sum() ** 2 / (logs.size * np.sum(ratios**2))),
        "ratio_min": float(ratios.min()),
        "ratio_max": float(ratios.max()),
        "ppl_train": float(np.exp(-(engine + logs).mean())),
        "ppl_rollout": float(np.exp(-engine.mean())),
        "ppl_ratio": math.exp(kl),
    }


def _check_level(level: str) -> None:
    if level not in LEVELS:
        raise unknown_name("level of the ratio", level, LEVELS)


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else -math.inf


def _log_ratios(train: ArrayLike, rollout: ArrayLike, mask: ArrayLike | None) -> tuple[Floats, Bools]:
    """(log rho, mask), with log rho 0 where the mask is False."""
    trainer = floats(train, "train")
    if trainer.ndim == 0:
        raise InvalidOptionError("train must have an axis of tokens, got a number.")
    engine = floats(rollout, "rollout", trainer.shape)
    valid = bools(mask, "mask", trainer.shape)
    for name, array, right in (("train", trainer, trainer < np.inf), ("rollout", engine, np.isfinite(engine))):
        bad = valid & ~right
        if bad.any():
            raise InvalidOptionError(f"{name} holds {array[bad][0]}, which is no log-probability of a sampled token.")
    return np.where(valid, trainer, 0.0) - np.where(valid, engine, 0.0), valid


def _units(level: str, turns: ArrayLike | None, shape: tuple[int, ...]) -> Ints:
    """A number for the token, turn or sequence to which each token belongs."""
    count = math.prod(shape)
    if level == "token":
        return np.arange(count).reshape(shape)
    row = np.broadcast_to(np.arange(math.prod(shape[:-1])).reshape(*shape[:-1], 1), shape)
    if level in ("sequence", "geometric"):
        return row
    if turns is None:
        raise InvalidOptionError(f"The level {level!r} needs turns: the turn of each token.")
    pairs = np.stack([row.ravel(), integers(turns, "turns", shape).ravel()], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(shape).astype(np.int64)


def _aggregated(log_ratio: Floats, valid: Bools, level: str, turns: ArrayLike | None) -> Floats:
    """The logarithm of the ratio of each token's unit."""
    unit = _units(level, turns, valid.shape)
    if level == "token" or not unit.size:
        return log_ratio
    total: Floats = np.bincount(unit[valid], log_ratio[valid], minlength=int(unit.max()) + 1).astype(np.float64)
    if level.endswith("geometric"):
        total = total / np.maximum(np.bincount(unit[valid], minlength=len(total)), 1)
    return total[unit]


def _any(flags: Bools, unit: Ints) -> Bools:
    """Whether any token of the same unit is flagged."""
    return np.isin(unit, unit[flags])
