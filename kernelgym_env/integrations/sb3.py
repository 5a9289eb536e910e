"""stable-baselines3 on kernels: schedules as actions, numbers as observations.

- `make_schedule_env` -- one environment, for `DummyVecEnv`, `Monitor` and `check_env`.
- `KernelVecEnv` -- many episodes in one process, as a `VecEnv`.
- `KernelCallback` -- speedups, shares and findings in the logger, e.g. for TensorBoard; keeps the best schedule.

Text spaces are foreign to stable-baselines3. Here an agent picks the knobs of a template of
`kernelgym_env.templates`, and sees the task and its results as numbers. Nothing below is special to an algorithm: PPO
and A2C take the `MultiDiscrete` space, DQN the `Discrete` one, sb3-contrib's `MaskablePPO` both.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from kernelgym_env.env import KernelEnv
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.keeping import named, write_whole
from kernelgym_env.metrics import fast_p, geomean
from kernelgym_env.rewards import get_reward
from kernelgym_env.tasks.model import Task
from kernelgym_env.templates.features import TASK_FEATURES, task_features
from kernelgym_env.vector_env import KernelVectorEnv
from kernelgym_env.wrappers import KevinReward, LogSpeedupReward, NumericObservation, ScheduleAction
from kernelgym_env.wrappers.numeric import numbers

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:  # pragma: no cover
    error.msg = f"{error.msg}. Run: pip install 'kernelgym_env[sb3]'"
    raise

__all__ = ["KernelCallback", "KernelVecEnv", "make_schedule_env"]

_WRAPPERS = {"log_speedup": LogSpeedupReward, "kevin": KevinReward}


def make_schedule_env(
    template: str,
    *,
    knobs: Mapping[str, Sequence[Any]] | None = None,
    discrete: bool = False,
    reward: str = "log_speedup",
    **options: Any,
) -> gym.Env[Any, Any]:
    """An environment whose actions are schedules and whose observations are numbers.

    Args:
        template: a template of `kernelgym_env.templates`, or a file; see `ScheduleAction`.
        knobs: see `ScheduleAction`.
        discrete: one number for all knobs together, as DQN needs it.
        reward: ``log_speedup`` (symmetric about eager's speed, so learning does not chase outliers) or ``kevin``.
        **options: of `KernelEnv`: ``task``, ``turns``, ``device``, ``pool``, ….

    Raises:
        InvalidOptionError: for another reward, and as the classes do.

    >>> env = make_schedule_env("cpp/rows", task="KernelGym/RowSum", pool="fake", turns=2)
    >>> observation, info = env.reset(seed=0)
    >>> observation.dtype, env.action_space
    (dtype('float32'), MultiDiscrete([2 3 3 2]))
    """
    if reward not in _WRAPPERS:
        raise InvalidOptionError(f"reward must be one of {', '.join(_WRAPPERS)}, got {reward!r}.")
    env = _WRAPPERS[reward](KernelEnv(**options))
    return NumericObservation(ScheduleAction(env, template, knobs, discrete))


class KernelVecEnv(VecEnv):
    """Several episodes at once, in one process: a `VecEnv` over `KernelVectorEnv`.

    A step renders all sources and hands them to the pool before it waits, so a pool with several judges or devices
    works on all of them; no process is started for an episode. Observations, actions, masks and rewards are those of
    `make_schedule_env`. `VecMonitor`, `VecNormalize`, `EvalCallback` and `evaluate_policy` work as on any other.

    Infos are those of `KernelEnv` with ``schedule`` (indices of the choices), and at an episode's end
    ``terminal_observation`` and ``TimeLimit.truncated``; the latter is true for a fault of infrastructure, so that the
    value of the last observation stands in for what was not seen.

    Args:
        num_envs: episodes side by side, at least 1.
        template: see `make_schedule_env`.
        knobs: see `ScheduleAction`.
        discrete: see `make_schedule_env`.
        reward: of each turn: a name, see `kernelgym_env.rewards.get_reward`, or a function of the evaluation.
        **options: of `KernelEnv`.

    Raises:
        UnknownNameError: for an unknown reward, template or option.
        InvalidOptionError: as `KernelVectorEnv` and `ScheduleAction` do; at reset for a task that a template of the
            library does not fit.

    >>> envs = KernelVecEnv(2, "cpp/rows", task="KernelGym/RowSum", pool="fake", turns=1)
    >>> envs.reset().shape == (2, *envs.observation_space.shape)
    True
    >>> observations, rewards, dones, infos = envs.step([[0, 0, 0, 0], [1, 1, 1, 1]])
    >>> dones.tolist(), "terminal_observation" in infos[0]
    ([True, True], True)
    >>> envs.close()
    """

    def __init__(
        self,
        num_envs: int,
        template: str,
        *,
        knobs: Mapping[str, Sequence[Any]] | None = None,
        discrete: bool = False,
        reward: str | Callable[[Evaluation], float] = "log_speedup",
        **options: Any,
    ) -> None:
        self._reward = get_reward(reward).function if isinstance(reward, str) else reward
        self._envs = KernelVectorEnv(num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **options)
        # one that is never stepped: it knows the spaces, the masks and how an action becomes source
        self._schedule = ScheduleAction(KernelEnv(**options), template, knobs, discrete)
        space = NumericObservation(self._schedule).observation_space
        self._shape: tuple[int, ...] = space.shape or ()
        self.render_mode = options.get("render_mode")
        self._tasks: list[Task | None] = [None] * num_envs
        self._known = np.zeros((num_envs, len(TASK_FEATURES)), np.float32)
        self._sent: list[np.ndarray] = []
        super().__init__(num_envs, space, self._schedule.action_space)

    def reset(self) -> np.ndarray:
        """Start all episodes anew; the seeds and options that were set are used once.

        Returns:
            Observations, float32 [episodes, numbers].
        """
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        shared = [dict(options or {}) for options in self._options]
        _, stacked = self._envs.reset(seed=seeds)
        infos = [_unstacked(stacked, index) for index in range(self.num_envs)]
        for index, options in enumerate(shared):
            if options:
                mask = np.arange(self.num_envs) == index
                _, stacked = self._envs.reset(options={**options, "reset_mask": mask})
                infos[index] = _unstacked(stacked, index)
        self._reset_seeds()
        self._reset_options()
        nothing = np.full(len(self._schedule.knobs), -1, np.int64)
        self.reset_infos = [{**info, "schedule": nothing} for info in infos]
        self._look()
        return np.stack([self._observe(index, info) for index, info in enumerate(self.reset_infos)])

    def step_async(self, actions: Any) -> None:
        """Render the schedules and hand them to the pool.

        Args:
            actions: one a place.
        """
        chosen = [self._schedule.indices(action) for action in actions]
        sources = [self._schedule.source(action, self._tasks[index]) for index, action in enumerate(actions)]
        for index, source in enumerate(sources):
            self._envs.submit(index, source)
        self._sent = chosen

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Wait until all are judged.

        Returns:
            (observations float32, rewards float32, dones bool, infos).
        """
        rewards, dones = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool)
        observations = np.zeros((self.num_envs, *self._shape), np.float32)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        ended = []
        while self._envs.pending:
            for turned in self._envs.collect():
                index, done = turned.index, turned.terminated or turned.truncated
                played = dict(turned.info["final_info"] if done else turned.info)
                played["schedule"] = self._sent[index]
                if played["status"] and played["valid"]:
                    rewards[index] = self._reward(Evaluation.from_dict(played["evaluation"]))
                dones[index], infos[index] = done, played
                observations[index] = self._observe(index, played)
                if done:
                    ended.append((index, turned.info))
        if ended:
            self._look()
        nothing = np.full(len(self._schedule.knobs), -1, np.int64)
        for index, fresh in ended:
            infos[index]["terminal_observation"] = observations[index].copy()
            infos[index]["TimeLimit.truncated"] = not infos[index]["valid"]
            kept = {key: value for key, value in fresh.items() if key not in ("final_obs", "final_info")}
            self.reset_infos[index] = {**kept, "schedule": nothing}
            observations[index] = self._observe(index, self.reset_infos[index])
        return observations, rewards, dones, infos

    def close(self) -> None:
        """Cancel what waits; the pool stays open."""
        self._envs.close()
        self._schedule.close()

    def action_masks(self) -> np.ndarray:
        """Which choices are allowed, bool [episodes, choices], see `ScheduleAction.action_masks`."""
        return np.stack([self._schedule.action_masks()] * self.num_envs)

    # what a VecEnv has to answer about its members

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The same attribute of each episode: one of `ScheduleAction` or of the environment."""
        if attr_name == "render_mode":
            value = self.render_mode
        elif attr_name == "task":
            return [self._tasks[index] for index in self._get_indices(indices)]
        else:
            value = self._schedule.get_wrapper_attr(attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Not possible: episodes share their options.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"Episodes of a KernelVecEnv share their options; make another one to change {attr_name}.")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of `ScheduleAction`, e.g. ``action_masks``, once for each episode."""
        method = self._schedule.get_wrapper_attr(method_name)
        return [method(*method_args, **method_kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: Any = None) -> list[bool]:
        """No wrapper of single environments is around an episode; use `VecMonitor`."""
        return [issubclass(ScheduleAction, wrapper_class) for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Pictures of the episodes where ``render_mode`` is ``rgb_array``."""
        frames = self._envs.render() if self.render_mode == "rgb_array" else None
        return [None] * self.num_envs if frames is None else list(frames)

    # parts

    def _look(self) -> None:
        """Note the tasks of the episodes that began."""
        for index in range(self.num_envs):
            task = Task.from_dict(self._envs.clone_state(index)["task"]) if self._stale(index) else self._tasks[index]
            if task is not self._tasks[index]:
                assert task is not None
                self._schedule.check_fit(task)
                self._tasks[index], self._known[index] = task, task_features(task)

    def _stale(self, index: int) -> bool:
        episode = self._envs.episodes[index]
        return episode is not None and episode.turn == 0

    def _observe(self, index: int, info: Mapping[str, Any]) -> np.ndarray:
        return numbers(self._known[index], info, self._schedule.knobs)


def _unstacked(stacked: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The info of one place, out of those of all."""
    found: dict[str, Any] = {}
    for key, values in stacked.items():
        if key.startswith("_"):
            continue
        found[key] = _unstacked(values, index) if isinstance(values, Mapping) else values[index]
    return found


class KernelCallback(BaseCallback):
    """Logs what became of the kernels, and keeps the best one's schedule.

    At the end of each rollout, over the turns since the last: ``kernel/correct``, ``kernel/fast_1``, ``kernel/fast_2``
    (shares of turns), ``kernel/geomean`` (of correct ones), ``kernel/best`` and ``kernel/evaluations`` (so far),
    ``kernel/faults`` (left out of the rest), and ``finding/<id>`` for each finding that came up. With
    ``tensorboard_log=`` of the model they are scalars of TensorBoard.

    Args:
        best: file that gets the task, the speedup and the schedule of the best kernel so far, as JSON: the indices and,
            of an environment that has ``knobs``, the values (``choices``); None for none.
        verbose: see `BaseCallback`.

    Attributes:
        best_speedup: greatest speedup so far, NaN before the first.
        evaluations: turns that were judged.
    """

    def __init__(self, best: str | os.PathLike[str] | None = None, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.best_speedup, self.evaluations = math.nan, 0
        self._file = None if best is None else Path(best)
        self._speedups: list[float] = []
        self._faults = 0
        self._findings: dict[str, int] = {}

    def _on_step(self) -> bool:
        for info in self.locals.get("infos", ()):
            if not info.get("status"):
                continue
            self.evaluations += 1
            if not info["valid"]:
                self._faults += 1
                continue
            self._speedups.append(info["speedup"] if info["credited"] else math.nan)
            for name in info["finding_ids"]:
                self._findings[name] = self._findings.get(name, 0) + 1
            if info["credited"] and not info["speedup"] <= self.best_speedup:
                self._keep(info)
        return True

    def _on_rollout_end(self) -> None:
        if self._speedups:
            self.logger.record("kernel/correct", float(np.mean(~np.isnan(self._speedups))))
            self.logger.record("kernel/fast_1", fast_p(self._speedups, 1.0))
            self.logger.record("kernel/fast_2", fast_p(self._speedups, 2.0))
            if not math.isnan(typical := geomean(self._speedups)):
                self.logger.record("kernel/geomean", typical)
        if not math.isnan(self.best_speedup):
            self.logger.record("kernel/best", self.best_speedup)
        self.logger.record("kernel/evaluations", self.evaluations)
        self.logger.record("kernel/faults", self._faults)
        for name, count in self._findings.items():
            self.logger.record(f"finding/{name}", count)
        self._speedups, self._findings, self._faults = [], {}, 0

    def _keep(self, info: Mapping[str, Any]) -> None:
        if math.isnan(info["speedup"]):
            return
        self.best_speedup = float(info["speedup"])
        if self._file is not None:
            schedule = np.asarray(info.get("schedule", ())).tolist()
            kept = {"task_id": info["task_id"], "speedup": self.best_speedup, "schedule": schedule}
            if self.training_env.has_attr("knobs"):
                knobs = self.training_env.get_attr("knobs", 0)[0]
                kept["choices"] = {
                    name: values[place] for (name, values), place in zip(knobs.items(), schedule, strict=True)
                }
            write_whole(named(self._file), json.dumps(kept) + "\n", private=False)
