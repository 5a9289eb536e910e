"""What an episode's turns add up to.

- `TurnReturns` -- reports the return of every turn when the episode has ended; the reward stays as it is.
- `TerminalOnly` -- pays once, at the end.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from kernelgym_env.credit.returns import MODES, turn_returns
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.wrappers.base import KernelWrapper, counts, is_valid, needs, number, whole
from kernelgym_env.wrappers.order import layers

__all__ = ["TerminalOnly", "TurnReturns"]


class TurnReturns(KernelWrapper):
    """Fills ``info["turn_returns"]`` at an episode's end: the return of each of its turns.

    Such a return looks ahead (a turn is paid for what later turns made of it), so no step can give it. It is computed
    by `kernelgym_env.credit.turn_returns` from ``info["score"]`` of the turns, float64 [turns]. It is NaN for turns
    that were not played and for those that do not count: a fault, a task that cannot be judged, the agent's stop. All
    are NaN before the end. Any environment of several
    turns whose ``info`` has ``score`` will do.

    **It never changes the reward.** Use one or the other: a trainer that discounts by itself (``gamma`` of PPO) takes
    the rewards and makes the same sum; a trainer of single turns takes ``turn_returns``. Both together discount twice.
    With PPO, ``gamma=0.4, gae_lambda=1`` is ``TurnReturns(gamma=0.4)`` with a learned baseline.

    Place: outside normalisers, inside `RecordTrajectory`.

    Args:
        env: what to wrap.
        gamma: discount per turn, 0 to 1.
        mode: ``sum``, ``max``, ``last`` or ``best``.
        turns: the greatest number of turns; None takes it from the environment (a `KernelEnv`'s budget, else a time
            limit). Where neither is there, the array is as long as the episode and empty before its end, which a
            vector environment cannot stack.

    Raises:
        UnknownNameError: for another mode.
        InvalidOptionError: for an argument outside its range, and in `step` if ``info`` has no score or the episode
            is longer than `turns`.

    >>> import gymnasium as gym
    >>> env = TurnReturns(gym.make("kernelgym_env:KernelGym/Fake-v0", turns=3), gamma=0.4)
    >>> observation, info = env.reset()
    >>> for speedup in (None, 1.0, 1.5):
    ...     info = env.step(f"# fake: speedup={speedup}\\nclass ModelNew: ..." if speedup else "")[4]
    >>> info["turn_returns"].round(6).tolist()
    [0.808, 2.02, 1.8]
    """

    place: ClassVar[str | None] = "returns"

    def __init__(self, env: gym.Env[Any, Any], gamma: float = 0.4, mode: str = "sum", turns: int | None = None) -> None:
        super().__init__(env, gamma=gamma, mode=mode, turns=turns)
        self.gamma = number("TurnReturns", "gamma", gamma, low=0, high=1)
        if mode not in MODES:
            raise unknown_name("mode of returns", mode, MODES)
        self.mode = mode
        self.turns = _turns_of(env) if turns is None else whole("TurnReturns", "turns", turns, low=1)
        self._scores: list[float] = []
        self._mask: list[bool] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._scores, self._mask = [], []
        return observation, {**info, "turn_returns": np.full(self.turns or 0, np.nan)}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        needs(self, info, "score")
        self._scores.append(float(info["score"]))
        self._mask.append(counts(info))
        played = len(self._scores)
        if self.turns is not None and played > self.turns:
            raise InvalidOptionError(
                f"TurnReturns has room for {self.turns} turns and the episode is longer; give it a greater turns=."
            )
        returns = np.full(self.turns or (played if terminated or truncated else 0), np.nan)
        if terminated or truncated:
            returns[:played] = turn_returns(self._scores, self.gamma, self.mode, mask=self._mask)
        return observation, reward, terminated, truncated, {**info, "turn_returns": returns}


class TerminalOnly(KernelWrapper):
    """Pays nothing until the episode ends, and then the sum, the last or the best of its scores.

    ``mode="last"`` is CUDA Agent's reward with `MilestoneReward` inside: the episode is worth what its last evaluated
    kernel is. A turn without an evaluation (the agent's stop) has no score. If the episode ends with a fault, it pays
    0.0 and is not to be used. ``info["score"]`` stays the turn's own.

    Place: outside normalisers, inside `RecordTrajectory`.

    Args:
        env: what to wrap; ``info`` must have ``score``.
        mode: ``sum``, ``last`` or ``best``.

    Raises:
        UnknownNameError: for another mode.
        InvalidOptionError: in `step`, if ``info`` has no score.

    >>> import gymnasium as gym
    >>> env = TerminalOnly(gym.make("kernelgym_env:KernelGym/Fake-v0", turns=3), mode="best")
    >>> observation, info = env.reset()
    >>> [env.step(f"# fake: speedup={s}\\nclass ModelNew: ...")[1] for s in (1.0, 2.0, 1.5)]
    [0.0, 0.0, 2.3]
    """

    place: ClassVar[str | None] = "returns"

    def __init__(self, env: gym.Env[Any, Any], mode: str = "last") -> None:
        super().__init__(env, mode=mode)
        if mode not in ("sum", "last", "best"):
            raise unknown_name("mode of TerminalOnly", mode, ("sum", "last", "best"))
        self.mode = mode
        self._scores: list[float] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._scores = []
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        needs(self, info, "score")
        if counts(info):
            self._scores.append(float(info["score"]))
        pays = (terminated or truncated) and is_valid(info) and self._scores
        return observation, self._total() if pays else 0.0, terminated, truncated, info

    def _total(self) -> float:
        if self.mode == "sum":
            return math.fsum(self._scores)
        return self._scores[-1] if self.mode == "last" else max(self._scores)


def _turns_of(env: gym.Env[Any, Any]) -> int | None:
    """The greatest number of turns, where an environment says it."""
    limits = [
        getattr(env.unwrapped, "turns", None),
        *(getattr(layer, "_max_episode_steps", None) for layer in layers(env)),
    ]
    known = [int(limit) for limit in limits if isinstance(limit, int | np.integer) and limit > 0]
    return min(known, default=None)
