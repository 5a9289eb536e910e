"""Which wrapper may stand outside which: the one rule, and the check of it.

A step passes the wrappers from the inside out. Rewards are made in this order, and each place exists for what it does
to the ones outside it:

| place | wrappers | at most |
|---|---|---|
| ``retest`` | `RewardJump`: may replace the evaluation that everything else reads | one |
| ``recipe`` | one recipe reward: reads the evaluation, drops the incoming reward | one |
| ``lazy`` | `LazyOptimization` | one |
| ``antihack`` | `AntiHack`: replaces the incoming reward | one |
| ``normalize`` | `RunningNormalizeClip`; gymnasium's `ClipReward`, `TransformReward`, … | one of a class |
| ``returns`` | `TurnReturns`, `TerminalOnly` | one of a class |
| ``record`` | `RecordTrajectory`: records what the policy sees | any number |

Observations have an order of their own: ``exemplars``, then ``history`` (`HistoryPrompt`, whose token budget counts
what is inside it), then ``chat`` (`ChatObservation`, after which there is no dict any more). Wrappers of actions
(``action``) may stand anywhere inside the recorder. The recorder is outside all of them.

A class takes a place with a class attribute `place`; a wrapper of one's own can do so too.

- `PLACES` -- every place.
- `place_of` -- the place of a wrapper.
- `check_order` -- called by each constructor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import NormalizeReward

from kernelgym_env.errors import InvalidOptionError

__all__ = ["PLACES", "check_order", "layers", "place_of"]

_REWARDS = ("retest", "recipe", "lazy", "antihack", "normalize", "returns", "record")
_OBSERVATIONS = ("retest", "exemplars", "history", "chat", "record")
_ACTIONS = ("action", "record")
_TRACKS = (_REWARDS, _OBSERVATIONS, _ACTIONS)

PLACES = tuple(dict.fromkeys(place for track in _TRACKS for place in track))
"""Every place a class may take."""

_SHARED = ("normalize", "returns")
"""Places that wrappers of different classes may share, in any order."""


def layers(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper[Any, Any, Any, Any]]:
    """The wrappers of an environment, from the outside in."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def place_of(wrapper: object) -> str | None:
    """The place of a wrapper, None if it may stand anywhere."""
    place = getattr(type(wrapper), "place", None)
    if place in PLACES:
        return str(place)
    # gymnasium's own have no such attribute: whatever maps a reward to a reward belongs to the normalisers
    return "normalize" if isinstance(wrapper, gym.RewardWrapper | NormalizeReward) else None


def check_order(wrapper: gym.Wrapper[Any, Any, Any, Any]) -> None:
    """Look at what a new wrapper was put around.

    Raises:
        InvalidOptionError: if it stands outside a wrapper that belongs outside it, or twice where one is allowed.

    >>> import gymnasium as gym
    >>> from kernelgym_env.wrappers.guard import AntiHack
    >>> from kernelgym_env.wrappers.reward import KevinReward
    >>> env = gym.make("kernelgym_env:KernelGym/Fake-v0")
    >>> KevinReward(AntiHack(env))
    Traceback (most recent call last):
    kernelgym_env.errors.InvalidOptionError: KevinReward cannot be put around AntiHack. ...: KevinReward, AntiHack.
    """
    mine = place_of(wrapper)
    for inner in layers(wrapper.env):
        theirs = place_of(inner)
        if mine is None or theirs is None:
            continue
        for track in _TRACKS:
            if mine in track and theirs in track and track.index(theirs) > track.index(mine):
                raise InvalidOptionError(
                    f"{_name(wrapper)} cannot be put around {_name(inner)}. Right order, from the inside out: "
                    f"{', '.join(_sorted(wrapper))}."
                )
        if theirs == mine and mine not in ("action", "record"):
            if mine not in _SHARED:
                raise InvalidOptionError(
                    f"{_name(wrapper)} cannot be put around {_name(inner)}: a stack has one wrapper of the place "
                    f"{mine!r}. Leave one of the two out."
                )
            if type(inner) is type(wrapper):
                raise InvalidOptionError(f"There is a {_name(wrapper)} in the stack already; leave one of the two out.")


def _name(wrapper: object) -> str:
    return type(wrapper).__name__


def _sorted(wrapper: gym.Wrapper[Any, Any, Any, Any]) -> list[str]:
    """The names in the stack that have a place, in an order that `check_order` accepts."""
    placed = [(place, _name(layer)) for layer in reversed(list(layers(wrapper))) if (place := place_of(layer))]
    # one line that all tracks agree with; `sorted` keeps the given order of equals
    line = ("action", "retest", "recipe", "lazy", "antihack", "normalize", "returns", "exemplars", "history", "chat")
    return [name for place, name in sorted(placed, key=lambda pair: (*line, "record").index(pair[0]))]
