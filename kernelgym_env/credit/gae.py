"""Generalised advantage estimation over turns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernelgym_env.credit._arrays import ArrayLike, Floats, bools, floats, rate, require_finite
from kernelgym_env.errors import InvalidOptionError

__all__ = ["Gae", "gae"]


class Gae(NamedTuple):
    """What `gae` returns.

    Attributes:
        advantages: float64 [..., turns].
        targets: what the values should have been, advantages + values; float64 [..., turns].
    """

    advantages: Floats
    targets: Floats


def gae(
    rewards: ArrayLike,
    values: ArrayLike,
    *,
    terminated: ArrayLike,
    truncated: ArrayLike | None = None,
    bootstrap: ArrayLike | None = None,
    gamma: float = 1.0,
    lam: float = 0.95,
    mask: ArrayLike | None = None,
) -> Gae:
    """Advantages from rewards and a critic's values, turn by turn.

    ``A_t = delta_t + gamma · lam · A_(t+1)`` with ``delta_t = r_t + gamma · V_(t+1) - V_t``. The sum ends at the end of
    an episode. After a turn that is ``terminated`` the value is 0. After one that is ``truncated``, and after the last
    turn of a row that goes on, it is `bootstrap`. A row may hold several episodes.

    With ``gamma=0.4, lam=1`` and values of 0 the advantages are Kevin's discounted sums.

    Source: Schulman et al. 2016; CUDA Agent takes it with gamma 1 and lambda 0.95, the defaults here.

    Args:
        rewards: shape [turns] or [..., turns].
        values: the critic's value of the state before each turn, same shape.
        terminated: same shape, True where the episode ended by itself, as the turn budget does.
        truncated: same shape, True where it was cut off; None for nowhere.
        bootstrap: the value of the state after a truncated turn and after the last turn of a row that goes on: a
            number, or an array that broadcasts to the shape. Other entries are not read.
        gamma: discount per turn, 0 to 1.
        lam: trace decay, 0 to 1.
        mask: same shape, False for turns that do not count. The advantage of the turn before one ends with the value of
            the state in which that one began, as after a fault. Turns at the end of a row that do not count, and are
            neither terminated nor truncated, are padding; the last one before them ends with `bootstrap`.

    Returns:
        `Gae`, both arrays 0 where `mask` is False.

    Raises:
        InvalidOptionError: for shapes that do not fit, numbers that are not finite, a gamma or lam outside 0 to 1, or
            an episode that goes on while `bootstrap` is None.

    >>> gae([0, 1.3, 1.8], [0, 0, 0], terminated=[0, 0, 1], gamma=0.4, lam=1).advantages.round(6).tolist()
    [0.808, 2.02, 1.8]
    """
    gamma, lam = rate(gamma, "gamma"), rate(lam, "lam")
    reward = floats(rewards, "rewards")
    if reward.ndim == 0 or reward.shape[-1] == 0:
        raise InvalidOptionError(f"rewards must have an axis of at least one turn, got the shape {reward.shape}.")
    shape = reward.shape
    value = floats(values, "values", shape)
    ended = bools(terminated, "terminated", shape)
    cut = np.zeros(shape, dtype=np.bool_) if truncated is None else bools(truncated, "truncated", shape)
    valid = bools(mask, "mask", shape)
    require_finite(reward, valid, "rewards")
    require_finite(value, valid, "values")
    outside = cut.copy()
    # whether this turn or one after it is there: it counts, or it is a fault that ended the episode, and no padding
    later = np.flip(np.logical_or.accumulate(np.flip(valid | cut | ended, -1), -1), -1)
    outside |= ~np.concatenate([later[..., 1:], np.zeros((*shape[:-1], 1), dtype=np.bool_)], -1)
    outside &= ~ended  # the value after these turns is in no row
    after = _bootstrap(bootstrap, outside & valid, shape)
    advantages = np.zeros(shape)
    trace, following = np.zeros(shape[:-1]), np.zeros(shape[:-1])
    for turn in reversed(range(shape[-1])):
        counts = valid[..., turn]
        over = ended[..., turn] | cut[..., turn]
        ahead = np.where(ended[..., turn], 0.0, np.where(outside[..., turn], after[..., turn], following))
        here = reward[..., turn] + gamma * ahead - value[..., turn] + gamma * lam * np.where(over, 0.0, trace)
        advantages[..., turn] = trace = np.where(counts, here, 0.0)
        following = value[..., turn]
    bad = np.argwhere(~np.isfinite(advantages))
    if len(bad):
        place = ", ".join(str(int(index)) for index in bad[0])
        raise InvalidOptionError(
            f"The advantage at [{place}] is not finite: the masked turn after it needs a finite entry in values."
        )
    return Gae(advantages, np.where(valid, advantages + value, 0.0))


def _bootstrap(given: ArrayLike | None, read: np.ndarray, shape: tuple[int, ...]) -> Floats:
    if given is None:
        if read.any():
            place = ", ".join(str(int(index)) for index in np.argwhere(read)[0])
            raise InvalidOptionError(
                f"The episode goes on after turn [{place}]: give the value there with bootstrap (0.0 for none), or "
                "mark the turn as terminated."
            )
        return np.zeros(shape)
    array = floats(given, "bootstrap")
    try:
        array = np.broadcast_to(array, shape)
    except ValueError:
        raise InvalidOptionError(f"bootstrap of shape {array.shape} does not broadcast to {shape}.") from None
    require_finite(array, read, "bootstrap")
    return array
