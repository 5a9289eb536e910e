"""Advantages relative to a group of samples.

- `group_advantages` -- GRPO and its variants, over a task or over each turn of it.
- `clipped_zscores` -- CUDA-L1's smoothing of rewards.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kernelgym_env.credit._arrays import (
    ArrayLike,
    Floats,
    Ints,
    bools,
    floats,
    integers,
    is_number,
    plain,
    require_finite,
)
from kernelgym_env.errors import InvalidOptionError, unknown_name

__all__ = ["KINDS", "SCOPES", "clipped_zscores", "group_advantages"]

KINDS = ("grpo", "grpo_mean", "dr_grpo", "rloo", "trloo")
"""Estimators; see `group_advantages`."""

SCOPES = ("task", "task_turn")
"""What makes a group: the key alone, or the key and the turn."""

_SAME = 1e-12
"""Returns of a group that differ by less than this, relatively, are equal: the rest is rounding."""

_TINY = 1e-150
"""The same in absolute terms: squares of smaller differences would be 0."""


def group_advantages(
    returns: ArrayLike,
    keys: ArrayLike | Sequence[Hashable],
    *,
    turns: ArrayLike | None = None,
    kind: str = "grpo",
    scope: str = "task",
    ddof: int = 0,
    eps: float = 1e-8,
    mask: ArrayLike | None = None,
) -> Floats:
    """Advantages of samples relative to their group, which may have any size.

    With the group's N returns R:

    - ``grpo``: ``(R - mean) / (std + eps)``.
    - ``grpo_mean``: ``R - mean``. Its expectation is 1 - 1/N of the gradient, as each return is part of its own
      baseline. This is Dr. Kernel's "GRPO".
    - ``dr_grpo``: ``R - mean``, the same numbers. The other half of Dr. GRPO is in the loss: a constant takes the place
      of each response's length.
    - ``rloo``: ``R - mean of the others``, which is N/(N-1) · (R - mean), and free of that bias.
    - ``trloo``: the same over the group of one turn; with one member R itself, without a baseline.

    A group whose returns are all equal has advantages 0, not 0/0. So has a group with a single member, except for
    ``trloo``. (verl's loop gives the return for ``rloo`` as well, its vectorised form 0.)

    Published choices: Kevin ``grpo`` with scope ``task`` over all turns of all trajectories; Dr. Kernel ``trloo`` with
    scope ``task_turn``. verl and TRL take ``ddof=1``, with eps 1e-6 and 1e-4.

    Source: GRPO (DeepSeekMath), Dr. GRPO, RLOO; TRLOO from Dr. Kernel (HKUST, TikTok).

    Args:
        returns: any shape, e.g. [samples] or [trajectories, turns].
        keys: which task (or prompt) each return belongs to: one hashable each, or one for each entry of the first
            axes, e.g. [trajectories].
        turns: the turn of each return, whole numbers of the same shape, or of shape [turns]. With two axes or more and
            None, the last axis counts the turns.
        kind: one of `KINDS`.
        scope: one of `SCOPES`.
        ddof: 0 divides by N in the standard deviation, 1 by N - 1; only for ``grpo``.
        eps: added to the standard deviation; only for ``grpo``.
        mask: same shape as `returns`, False for those that do not count. They are in no group, and N is without them.

    Returns:
        float64 of the shape of `returns`, 0 where `mask` is False.

    Raises:
        UnknownNameError: for an unknown kind or scope.
        InvalidOptionError: for returns that are not finite, shapes that do not fit, ``scope="task_turn"`` without
            turns, or ``trloo`` over several turns at once.

    >>> group_advantages([0, 0, 0, 2], ["a"] * 4, kind="trloo").round(4).tolist()
    [-0.6667, -0.6667, -0.6667, 2.0]
    >>> group_advantages([[1, 5], [3, 7]], ["a", "a"], kind="trloo", scope="task_turn").tolist()
    [[-2.0, -2.0], [2.0, 2.0]]
    """
    if kind not in KINDS:
        raise unknown_name("kind of advantage", kind, KINDS)
    if scope not in SCOPES:
        raise unknown_name("scope of groups", scope, SCOPES)
    if ddof not in (0, 1):
        raise InvalidOptionError(f"ddof must be 0 or 1, got {ddof!r}.")
    if not is_number(eps) or not 0 <= eps < math.inf:
        raise InvalidOptionError(f"eps must be a number of at least 0, got {eps!r}.")
    values = floats(returns, "returns")
    valid = bools(mask, "mask", values.shape)
    require_finite(values, valid, "returns")
    if kind == "trloo" and scope == "task" and (turns is not None or values.ndim > 1):
        raise InvalidOptionError(
            "trloo compares returns of the same turn: pass scope='task_turn', or kind='rloo' to compare over all turns."
        )
    group = _groups(keys, turns, scope, values.shape)[valid]
    advantages = np.zeros(values.shape)
    if group.size:
        advantages[valid] = _within(values[valid], group, kind, ddof, eps)
    return advantages


def _within(values: Floats, group: Ints, kind: str, ddof: int, eps: float) -> Floats:
    """Advantages of `values` [n] in the groups numbered by `group` [n]."""
    counts = np.bincount(group)
    mean = np.bincount(group, values) / np.maximum(counts, 1)
    centred = values - mean[group]
    high, low = np.full(len(counts), -np.inf), np.full(len(counts), np.inf)
    np.maximum.at(high, group, values)
    np.minimum.at(low, group, values)
    equal = (high - low <= _SAME * np.maximum(np.abs(high), np.abs(low)) + _TINY)[group]
    centred[equal] = 0.0
    size = counts[group]
    if kind in ("grpo_mean", "dr_grpo"):
        return centred
    if kind == "grpo":
        std = np.sqrt(np.bincount(group, centred**2) / np.maximum(counts - ddof, 1))[group]
        return np.where(equal, 0.0, centred / np.where(equal, 1.0, std + eps))
    alone = values if kind == "trloo" else 0.0
    return np.where(size == 1, alone, centred * size / np.maximum(size - 1, 1))


def _groups(keys: ArrayLike | Sequence[Hashable], turns: ArrayLike | None, scope: str, shape: tuple[int, ...]) -> Ints:
    """A number for each group, from 0, in the shape of the returns."""
    number = _numbered(keys, shape)
    if scope == "task":
        return number
    if turns is None:
        if len(shape) < 2:
            raise InvalidOptionError("scope='task_turn' needs turns: the turn of each return.")
        turn: Any = np.arange(shape[-1])
    else:
        turn = integers(turns, "turns")
        if turn.shape != shape and (len(shape) < 2 or turn.shape != shape[-1:]):
            raise InvalidOptionError(f"turns must have the shape {shape} of the returns, got {turn.shape}.")
    pairs = np.stack([number.ravel(), np.broadcast_to(turn, shape).ravel()], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(shape).astype(np.int64)


def _numbered(keys: ArrayLike | Sequence[Hashable], shape: tuple[int, ...]) -> Ints:
    if isinstance(keys, (list, tuple)) and not any(isinstance(key, list) or getattr(key, "ndim", 0) for key in keys):
        number = _counted(keys)  # an array would make two axes of keys that are tuples
    else:
        array = plain(keys, "keys")
        number = _counted(array.ravel().tolist()) if array.dtype == object else np.unique(array, return_inverse=True)[1]
        number = number.reshape(array.shape).astype(np.int64)
    axes = number.ndim
    if axes == 0 or number.shape != shape[:axes]:
        raise InvalidOptionError(
            f"keys must have the shape of the returns {shape}, or of their first axes, got {number.shape}."
        )
    return np.broadcast_to(number.reshape(number.shape + (1,) * (len(shape) - axes)), shape)


def _counted(keys: Sequence[Any]) -> Ints:
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(_hashable(key), len(seen)) for key in keys], dtype=np.int64)


def _hashable(key: Any) -> Hashable:
    if hasattr(key, "item") and getattr(key, "ndim", 1) == 0:
        return key.item()  # of NumPy or torch: two tensors are never the same key
    try:
        hash(key)
    except TypeError:
        raise InvalidOptionError(f"A key must be hashable, got {key!r:.100}.") from None
    return key


def clipped_zscores(
    values: ArrayLike,
    keys: ArrayLike | Sequence[Hashable] | None = None,
    *,
    bound: float = 1.5,
    ddof: int = 0,
    eps: float = 0.0,
    mask: ArrayLike | None = None,
) -> Floats:
    """Rewards as z-scores of their group, clipped to ``-bound`` and ``bound``.

    In a group of N a z-score with ``ddof=0`` is at most sqrt(N - 1), so a bound of 1.5 takes effect from N = 4 on
    (from N = 5 with ``ddof=1``). GRPO normalises the result again.

    Source: CUDA-L1 (DeepReinforce), z = (r - mean) / std, clipped to ±1.5 before GRPO.

    Args:
        values: rewards, any shape.
        keys: see `group_advantages`; None takes all values as one group.
        bound: greatest absolute value, positive.
        ddof: see `group_advantages`.
        eps: see `group_advantages`.
        mask: see `group_advantages`.

    Returns:
        float64 of the shape of `values`; 0 in a group of equal values and where `mask` is False.

    Raises:
        InvalidOptionError: for a bound that is not positive, and as `group_advantages`.

    >>> clipped_zscores([1, 1.1, 0.9, 1, 18]).round(6).tolist()
    [-0.499978, -0.485273, -0.514684, -0.499978, 1.5]
    """
    if not is_number(bound) or not bound > 0:
        raise InvalidOptionError(f"bound must be positive, got {bound!r}.")
    array = floats(values, "values")
    if keys is None:
        keys = np.zeros(array.shape, dtype=np.int64)
    scores = group_advantages(array, keys, kind="grpo", ddof=ddof, eps=eps, mask=mask)
    return np.clip(scores, -bound, bound)
