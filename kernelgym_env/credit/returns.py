"""From the scores of turns to returns.

- `turn_returns` -- along an episode.
- `tree_returns` -- along the branches of a search tree.
- `improvements` -- what each turn adds to the best score so far.
- `pad` -- rows of different lengths as one array and its mask.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from kernelgym_env.credit._arrays import ArrayLike, Bools, Floats, bools, floats, is_number, plain, rate, require_finite
from kernelgym_env.errors import InvalidOptionError, unknown_name

__all__ = ["MODES", "improvements", "pad", "tree_returns", "turn_returns"]

MODES = ("sum", "max", "last", "best")
"""How later scores count for a turn; see `turn_returns`."""


def turn_returns(scores: ArrayLike, gamma: float, mode: str = "sum", *, mask: ArrayLike | None = None) -> Floats:
    """The return of each turn, from the scores of the turns of whole episodes.

    With the score S_t of turn t and the last turn T:

    - ``sum``: sum over i >= t of gamma^(i-t) · S_i. Kevin's choice with gamma 0.4; Dr. Kernel's with gamma 1.
    - ``max``: max over i >= t of gamma^(i-t) · S_i.
    - ``last``: gamma^(T-t) · S_T. With gamma 1 the last score for every turn, as RLEF does.
    - ``best``: max over all i of S_i for every turn, also for those after the best one; gamma has no effect.

    A return looks ahead, so it is known when the episode has ended. A trainer that discounts by itself must be given
    the scores, not these returns.

    With negative scores ``max`` and ``last`` reward delay: gamma shrinks a penalty that lies further ahead.

    Source: Kevin (Cognition, Stanford), which keeps ``sum`` and gives the other three as alternatives.

    Args:
        scores: shape [turns] or [..., turns].
        gamma: discount per turn, 0 to 1.
        mode: one of `MODES`.
        mask: same shape, False for turns that do not count (faults, padding). Their score is not read. A turn that is
            left out in the middle still counts as one step of discount.

    Returns:
        float64 of the same shape, NaN where `mask` is False.

    Raises:
        UnknownNameError: for an unknown mode.
        InvalidOptionError: for a gamma outside 0 to 1, a score that is not finite, or a mask of another shape.

    >>> turn_returns([0, 1.3, 1.8], 0.4).round(6).tolist()
    [0.808, 2.02, 1.8]
    >>> turn_returns([0, 1.3, 1.8], 0.4, "max").round(6).tolist()
    [0.52, 1.3, 1.8]
    """
    _check_mode(mode)
    gamma = rate(gamma, "gamma")
    values, valid = _scores(scores, mask)
    returns = np.full(values.shape, np.nan)
    if mode == "best":
        best = np.max(values, axis=-1, keepdims=True, where=valid, initial=-np.inf)
        returns[...] = best
    else:
        ahead = np.full(values.shape[:-1], np.nan)  # the later turns' share, NaN while there is none
        for turn in reversed(range(values.shape[-1])):
            own = np.where(valid[..., turn], values[..., turn], np.nan)
            ahead = _step(mode, own, gamma * ahead)
            returns[..., turn] = ahead
    returns[~valid] = np.nan
    return returns


def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise unknown_name("mode of returns", mode, MODES)


def _scores(scores: ArrayLike, mask: ArrayLike | None) -> tuple[Floats, Bools]:
    values = floats(scores, "scores")
    if values.ndim == 0:
        raise InvalidOptionError(f"scores must have an axis of turns, got the number {values}.")
    valid = bools(mask, "mask", values.shape)
    require_finite(values, valid, "scores")
    return np.where(valid, values, 0.0), valid


def _step(mode: str, own: Floats, ahead: Floats) -> Floats:
    """The value of a turn from its own score and the discounted value ahead; either may be NaN, for none."""
    if mode == "sum":
        both = own + ahead
    elif mode == "max":
        both = np.maximum(own, ahead)
    else:
        both = ahead
    return np.where(np.isnan(ahead), own, np.where(np.isnan(own), ahead, both))


def tree_returns(
    scores: ArrayLike,
    parents: Sequence[Hashable | None],
    gamma: float,
    mode: str = "sum",
    *,
    over: str = "mean",
    ids: Sequence[Hashable] | None = None,
    mask: ArrayLike | None = None,
) -> Floats:
    """The return of each turn of a search tree, in which a turn may have several continuations.

    As `turn_returns`, except that what lies ahead of a turn is the mean (or the greatest value) over its children. A
    tree without branches has the returns of `turn_returns`. In mode ``best`` each branch has the best score of its
    path, and a turn that is shared by branches their mean or greatest value.

    Source: this package; `turn_returns` carried over to beam search and refinement, whose trajectories share turns.

    Args:
        scores: shape [nodes], one turn each, in any order.
        parents: the id of each node's parent; None for a first turn, and -1 too where `ids` is not given.
        gamma: discount per turn, 0 to 1.
        mode: one of `MODES`.
        over: how children are combined: ``mean``, the return of going on with any of them, or ``max``, of going on with
            the best.
        ids: the nodes' ids; None numbers them from 0.
        mask: shape [nodes], False for turns that do not count. One without children is left out of its parent's mean;
            one with children passes on what lies ahead.

    Returns:
        float64 [nodes], NaN where `mask` is False.

    Raises:
        UnknownNameError: for an unknown mode or `over`.
        InvalidOptionError: for an unknown parent, an id given twice, a cycle, or what `turn_returns` refuses.

    >>> tree_returns([1.0, 2.0, 4.0, 6.0], parents=[None, 0, 0, 1], gamma=0.5).tolist()
    [3.25, 5.0, 4.0, 6.0]
    """
    _check_mode(mode)
    if over not in ("mean", "max"):
        raise unknown_name("way to combine children", over, ("mean", "max"))
    gamma = rate(gamma, "gamma")
    values, valid = _scores(scores, mask)
    if values.ndim != 1:
        raise InvalidOptionError(f"scores of a tree must have the shape [nodes], got {values.shape}.")
    parent = _parents(parents, ids, len(values))
    order = _from_the_roots(parent)
    combine = np.mean if over == "mean" else np.max
    own = np.where(valid, values, np.nan)
    if mode == "best":
        for node in order:
            if parent[node] >= 0:
                own[node] = np.fmax(own[node], own[parent[node]])  # fmax: a number rather than NaN
    ahead: list[list[float]] = [[] for _ in values]
    returns = np.full(values.shape, np.nan)
    for node in reversed(order):
        later = ahead[node]
        if not later and not valid[node]:
            continue
        discount = 1.0 if mode == "best" else gamma
        carried = np.asarray(discount * combine(later) if later else np.nan)
        returns[node] = _step("last" if mode == "best" else mode, own[node], carried)
        if parent[node] >= 0:
            ahead[parent[node]].append(float(returns[node]))
    returns[~valid] = np.nan
    return returns


def _parents(parents: Sequence[Hashable | None], ids: Sequence[Hashable] | None, nodes: int) -> list[int]:
    """The index of each node's parent, -1 for none."""
    if not isinstance(parents, (list, tuple)):
        parents = plain(parents, "parents").tolist()
    if len(parents) != nodes or (ids is not None and len(ids) != nodes):
        raise InvalidOptionError(f"parents and ids need one entry for each of the {nodes} nodes.")
    index = {name: number for number, name in enumerate(range(nodes) if ids is None else ids)}
    if len(index) != nodes:
        raise InvalidOptionError(f"ids must differ, got {nodes} ids of which {len(index)} differ.")
    result = []
    for node, name in enumerate(parents):
        if name is None or (ids is None and name == -1):
            result.append(-1)
        elif name in index:
            result.append(index[name])
        else:
            raise InvalidOptionError(f"parents[{node}] is {name!r}, which is no node's id. A first turn has None.")
    return result


def _from_the_roots(parent: list[int]) -> list[int]:
    """The nodes in an order in which parents come before children."""
    children: list[list[int]] = [[] for _ in parent]
    for node, above in enumerate(parent):
        if above >= 0:
            children[above].append(node)
    order = [node for node, above in enumerate(parent) if above < 0]
    for node in order:  # grows meanwhile
        order.extend(children[node])
    if len(order) != len(parent):
        lost = sorted(set(range(len(parent))) - set(order))
        raise InvalidOptionError(f"parents has a cycle: from node {lost[0]} no first turn is reached.")
    return order


def improvements(scores: ArrayLike, *, start: float = 0.0, mask: ArrayLike | None = None) -> Floats:
    """What each turn adds to the best score so far; adds up to the best score less `start`, if that is positive.

    Source: this package; see `kernelgym_env.rewards.improvement`, which gives the same turn by turn.

    Args:
        scores: shape [turns] or [..., turns].
        start: the best score before the first turn.
        mask: same shape, False for turns that do not count.

    Returns:
        float64 of the same shape, at least 0, and 0 where `mask` is False.

    Raises:
        InvalidOptionError: as for `turn_returns`, or for a `start` that is not finite.

    >>> improvements([1.36, 0, 0.91, 1.49, 2.23]).round(6).tolist()
    [1.36, 0.0, 0.0, 0.13, 0.74]
    """
    if not is_number(start) or not np.isfinite(start):
        raise InvalidOptionError(f"start must be a finite number, got {start!r}.")
    values, valid = _scores(scores, mask)
    reached = np.maximum.accumulate(np.where(valid, np.maximum(values, start), start), axis=-1)
    return np.diff(reached, axis=-1, prepend=start)


def pad(rows: Sequence[ArrayLike], fill: float = 0.0) -> tuple[Floats, Bools]:
    """Rows of different lengths as one array.

    Args:
        rows: each of shape [turns of that row].
        fill: what stands after the end of a shorter row.

    Returns:
        (values, mask), float64 and bool of shape [rows, most turns]; the mask is False where `fill` stands.

    Raises:
        InvalidOptionError: for a row with more than one axis.

    >>> values, mask = pad([[1.0, 2.0, 3.0], [4.0]])
    >>> values.tolist(), mask.tolist()
    ([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]], [[True, True, True], [True, False, False]])
    """
    arrays = [floats(row, f"rows[{number}]") for number, row in enumerate(rows)]
    for number, array in enumerate(arrays):
        if array.ndim != 1:
            raise InvalidOptionError(f"rows[{number}] must have the shape [turns], got {array.shape}.")
    longest = max((len(array) for array in arrays), default=0)
    values, mask = np.full((len(arrays), longest), float(fill)), np.zeros((len(arrays), longest), dtype=np.bool_)
    for number, array in enumerate(arrays):
        values[number, : len(array)] = array
        mask[number, : len(array)] = True
    return values, mask
