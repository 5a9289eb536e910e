"""`KernelEnv`: a task as a gymnasium environment.

An action is a text with the source of `ModelNew`; a step builds it, proves it correct, times it, and returns a reward
and feedback. The episode has a fixed number of turns, which is part of the observation.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from kernelgym_env import rendering
from kernelgym_env.episode import Episode
from kernelgym_env.rules import MAX_TURNS, STOP, Position, Rules
from kernelgym_env.tasks import Task

__all__ = ["MAX_TURNS", "STOP", "KernelEnv"]


class KernelEnv(Rules, gym.Env[dict[str, Any], str]):
    """Write a faster kernel for a task, in several turns.

    **Action**: text, either source or a reply with a fenced block (see `kernelgym_env.extract_source`), or `STOP`.

    **Observation**: a dict of ``prompt`` (the task), ``history`` (a tuple of ``{"action", "feedback"}``, oldest first),
    ``feedback`` (of the last turn, ``""`` at the start), ``turn`` and ``turns_left``.

    **Reward**: `kernelgym_env.rewards.kevin`: 0 unless correct, else 0.3 + speedup; also in ``info["score"]``.

    **End**: ``terminated`` at the last turn or at `STOP`. ``truncated`` means that infrastructure failed
    (``info["valid"]`` is False, the reward is 0 and says nothing about the submission).

    Whatever a submission does becomes a result; `step` raises only for a caller's mistake.

    Args:
        task: a task id, a file, a source text, a `Task`, or a list of them to sample from at reset; None samples from
            the core suite. Anything `kernelgym_env.load_tasks` takes.
        turns: the turn budget, 1 to `MAX_TURNS`.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<index>``.
        backend: ``auto``, ``triton``, ``cuda``, ``cupy`` or ``cpp``; not ``cuda`` or ``cupy`` where device is ``cpu``.
        protocol: name of a protocol, see `kernelgym_env.evaluation.protocols`, or a `Protocol`.
        library_ops: overrides the protocol's policy: ``forbid``, ``gemm`` or ``allow``.
        pool: who evaluates: ``local``, ``fake``, ``simulated``, or a key given to `kernelgym_env.pools.register`.
        feedback: how much it says: ``status``, ``error`` or ``profile``.
        render_mode: ``ansi``, ``human`` or ``rgb_array``.
        level_mix: how often tasks of each level are drawn at reset, as weights by level: ``{1: 2, 2: 1}``. None draws
            each task alike.

    Raises:
        UnknownNameError: for an unknown name, with what is allowed.
        InvalidOptionError: for a value outside its range.
        MissingDataError: for a task whose data is not on this machine, or that needs a library or weights which are
            not; of several tasks those that need such are left out with a warning, as long as one is left.
    """

    _position_now: Position | None = None

    # gymnasium's interface

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode.

        Args:
            seed: fixes which task is drawn; the inputs that a submission is checked on come from the pool's secret.
            options: ``task`` (one of the environment's tasks; any task where none was given to the constructor) and
                ``history`` (earlier turns to show, dicts with ``action`` and ``feedback``).

        Raises:
            UnknownNameError: for an unknown option or task.
            InvalidOptionError: for a history of another form.
        """
        super().reset(seed=seed)
        position = self._position_now = self._begin(self.np_random, options)
        if self.render_mode == "human":
            rendering.show(position.episode)
        return self._observe(position), self._info(position)

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Play one turn.

        Args:
            action: source, a reply that holds it, or `STOP`.

        Returns:
            (observation, reward, terminated, truncated, info).

        Raises:
            gymnasium.error.ResetNeeded: before the first reset and after the end of an episode.
            gymnasium.error.InvalidAction: if the action is not text.
        """
        position = self._reached("step")
        submission = self._submission(position, action)
        evaluation = None if submission is None else self._evaluation(position, self._send(submission))
        played = self._after(position, action, evaluation)
        self._position_now = played.position
        if self.render_mode == "human":
            rendering.show(played.position.episode)
        return played.observation, played.reward, played.terminated, played.truncated, played.info

    def render(self) -> str | np.ndarray | None:
        """The episode so far: a text (``ansi``) or a picture (``rgb_array``, uint8 [height, width, 3]).

        In mode ``human`` each turn is printed as it happens and this returns None.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
            gymnasium.error.DependencyNotInstalled: for ``rgb_array`` without Pillow.
        """
        if self.render_mode is None:
            gym.logger.warn("render() does nothing without a render_mode; choose one in gym.make.")
            return None
        return rendering.frame(self._reached("render").episode, self.render_mode)

    # beside gymnasium's interface

    @property
    def task(self) -> Task | None:
        """The task of the current episode, sized for the device; None before the first reset."""
        return None if self._position_now is None else self._position_now.task

    @property
    def episode(self) -> Episode | None:
        """The state of the current episode; None before the first reset."""
        return None if self._position_now is None else self._position_now.episode

    def clone_state(self) -> dict[str, Any]:
        """The current episode as plain data: task and history, no process, no random state.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        return self._state(self._reached("clone_state"))

    def restore_state(self, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Continue from a cloned state.

        Args:
            state: from `clone_state`, of this environment or another one with the same turn budget.

        Returns:
            (observation, info), as `reset` does.

        Raises:
            InvalidOptionError: if the state has another turn budget.
        """
        position = self._position_now = self._continue(state)
        return self._observe(position), self._info(position)

    def _reached(self, caller: str) -> Position:
        if self._position_now is None:
            raise gym.error.ResetNeeded(f"Call reset() before {caller}().")
        return self._position_now
