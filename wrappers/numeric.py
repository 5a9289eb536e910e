"""What an agent that knows no text is shown.

- `NumericObservation` -- the task and the results so far as numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kernelgym_env.templates.features import RESULT_FEATURES, TASK_FEATURES, result_features, task_features
from kernelgym_env.wrappers.action import ScheduleAction
from kernelgym_env.wrappers.base import KernelWrapper, needs
from kernelgym_env.wrappers.order import layers

__all__ = ["NumericObservation"]

_NEEDED = ("status", "speedup", "best_speedup", "turn", "turns_left")


class NumericObservation(KernelWrapper):
    """The task, the last result, the turn and the last choices as a vector, for agents that know no text.

    float32 in -1 to 1: `kernelgym_env.templates.features.TASK_FEATURES`, then `RESULT_FEATURES`, then, with a
    `ScheduleAction` inside, the last choice of each knob as a share of its range, -1 before the first. `names` says
    what each number is. Reward, ends and `info` stay.

    Args:
        env: what to wrap: a `KernelEnv`, or wrappers around one.

    Attributes:
        names: of the numbers, in order.

    >>> import gymnasium as gym
    >>> env = NumericObservation(ScheduleAction(gym.make("kernelgym_env:KernelGym/RowSum-v0", pool="fake"), "cpp/rows"))
    >>> observation, info = env.reset(seed=0)
    >>> observation.shape == env.observation_space.shape, env.names[-1]
    (True, 'choice_threads')
    """

    place: ClassVar[str | None] = "chat"

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        schedules = [layer for layer in layers(env) if isinstance(layer, ScheduleAction)]
        self._knobs = schedules[0].knobs if schedules else {}
        self.names = (*TASK_FEATURES, *RESULT_FEATURES, *(f"choice_{name}" for name in self._knobs))
        self.observation_space = spaces.Box(-1.0, 1.0, (len(self.names),), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        _, info = self.env.reset(seed=seed, options=options)
        return self._observe(info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._observe(info), reward, terminated, truncated, info

    def _observe(self, info: Mapping[str, Any]) -> NDArray[np.float32]:
        needs(self, info, *_NEEDED)
        task = getattr(self.unwrapped, "task", None)
        known = np.zeros(len(TASK_FEATURES), np.float32) if task is None else task_features(task)
        return numbers(known, info, self._knobs)


def numbers(known: NDArray[np.float32], info: Mapping[str, Any], knobs: Mapping[str, list[Any]]) -> NDArray[np.float32]:
    """The observation of a task's numbers, a step's `info`, and the knobs whose last choice is in it."""
    chosen = info.get("schedule", ())
    shares = [
        -1.0 if index < 0 else index / max(len(values) - 1, 1)
        for index, values in zip(np.asarray(chosen).tolist(), knobs.values(), strict=True)
    ]
    return np.concatenate([known, result_features(info), np.array(shares, np.float32)]).astype(np.float32)
