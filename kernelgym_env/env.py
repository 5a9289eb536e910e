"""`KernelEnv`: a task as a gymnasium environment.

An action is a text with the source of `ModelNew`; a step builds it, proves it correct, times it, and returns a reward
and feedback. The episode has a fixed number of turns, which is part of the observation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from kernelgym_env import devices, pools, rendering, rewards
from kernelgym_env.episode import Episode, Turn, history_from
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.feedback import at_level, check_level
from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission, check_backend, check_device, check_library_ops
from kernelgym_env.limits import MAX_FEEDBACK_CHARS, MAX_PROMPT_CHARS, MAX_SOURCE_CHARS, clip
from kernelgym_env.prompts import extract_source, task_prompt
from kernelgym_env.spaces import UnicodeText
from kernelgym_env.tasks import Task, load_task, load_tasks
from kernelgym_env.tasks.flaws import describe
from kernelgym_env.tasks.kernelbench.requirements import check_requirements
from kernelgym_env.tasks.mix import probabilities

__all__ = ["MAX_TURNS", "STOP", "KernelEnv"]

STOP = "<stop>"
"""The action that ends an episode: nothing is evaluated, the reward is 0."""

MAX_TURNS = 1_000
"""Greatest turn budget."""

_OPTIONS = ("task", "history")


class KernelEnv(gym.Env[dict[str, Any], str]):
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
        backend: ``auto``, ``triton``, ``cuda``, ``cupy`` or ``cpp``.
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
        MissingDataError: for a task whose data is not on this machine.
    """

    metadata = {"render_modes": ["ansi", "human", "rgb_array"], "render_fps": 1}

    def __init__(
        self,
        task: str | Task | Sequence[str | Task] | None = None,
        turns: int = 4,
        device: str = "auto",
        backend: str = "auto",
        protocol: str | Protocol = "strict",
        library_ops: str | None = None,
        pool: str = "local",
        feedback: str = "error",
        render_mode: str | None = None,
        level_mix: Mapping[int | str, float] | None = None,
    ) -> None:
        if isinstance(turns, bool) or not isinstance(turns, (int, np.integer)) or not 1 <= turns <= MAX_TURNS:
            raise InvalidOptionError(f"turns must be a whole number from 1 to {MAX_TURNS}, got {turns!r}.")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown_name("render mode", render_mode, self.metadata["render_modes"])
        self.turns = int(turns)
        self.device = check_device(device)
        self.backend = check_backend(backend)
        get_protocol(protocol)
        self.protocol = protocol
        self.library_ops = check_library_ops(library_ops)
        self.pool = pools.check_key(pool)
        self.feedback = check_level(feedback)
        self.render_mode = render_mode
        self._pinned = task is not None
        self._tasks = _tasks_of(task)
        self._check_tasks(self._tasks)
        if self._pinned:
            self._warn_of_flaws()
        self._probabilities = None if level_mix is None else probabilities(self._tasks, level_mix)
        text, replies = UnicodeText(MAX_FEEDBACK_CHARS), UnicodeText(MAX_SOURCE_CHARS)
        self.action_space = UnicodeText(MAX_SOURCE_CHARS)
        self.observation_space = spaces.Dict(
            {
                "prompt": UnicodeText(MAX_PROMPT_CHARS),
                "history": spaces.Sequence(spaces.Dict({"action": replies, "feedback": text})),
                "feedback": text,
                "turn": spaces.Discrete(self.turns + 1),
                "turns_left": spaces.Discrete(self.turns + 1),
            }
        )
        self._task: Task | None = None
        self._prompt = ""
        self._episode: Episode | None = None

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
        options = options or {}
        for name in options:
            if name not in _OPTIONS:
                raise unknown_name("reset option", name, _OPTIONS)
        given = history_from(options.get("history") or ())
        wanted = options.get("task")
        # drawn in any case, so that an option does not shift later draws
        drawn = self._draw()
        task = drawn if wanted is None else self._choose(wanted)
        self._start(task, Episode(task.id, self.turns, given))
        if self.render_mode == "human":
            self._print()
        return self._observe(), self._info(None, Turn("", ""))

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
        if self._episode is None or self._task is None:
            raise gym.error.ResetNeeded("Call reset() before step().")
        if self._episode.ended:
            raise gym.error.ResetNeeded("The episode is over; call reset() to start the next one.")
        if not isinstance(action, str):
            raise gym.error.InvalidAction(f"An action is text, got {type(action).__name__}: {action!r:.100}")
        evaluation: Evaluation | None = None
        if action.strip() == STOP:
            turn = Turn(STOP, "You ended the episode.")
        else:
            evaluation = self._evaluate(action)
            turn = Turn(
                clip(action, MAX_SOURCE_CHARS),
                at_level(evaluation, self.feedback),
                evaluation.status.value,
                rewards.kevin(evaluation),
                evaluation.speedup,
                evaluation.speedup_low,
                evaluation.speedup_high,
            )
        fault = evaluation is not None and not evaluation.valid
        self._episode = self._episode.after(turn, stop=evaluation is None, fault=fault)
        if self.render_mode == "human":
            self._print()
        return self._observe(), turn.score, self._episode.ended and not fault, fault, self._info(evaluation, turn)

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
        if self._episode is None:
            raise gym.error.ResetNeeded("Call reset() before render().")
        if self.render_mode == "ansi":
            return rendering.as_text(self._episode)
        if self.render_mode == "rgb_array":
            return rendering.as_picture(self._episode)
        return None

    # beside gymnasium's interface

    @property
    def task(self) -> Task | None:
        """The task of the current episode, sized for the device; None before the first reset."""
        return self._task

    @property
    def episode(self) -> Episode | None:
        """The state of the current episode; None before the first reset."""
        return self._episode

    def clone_state(self) -> dict[str, Any]:
        """The current episode as plain data: task and history, no process, no random state.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self._episode is None or self._task is None:
            raise gym.error.ResetNeeded("Call reset() before clone_state().")
        return {"task": self._task.to_dict(), "episode": self._episode.to_dict()}

    def restore_state(self, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Continue from a cloned state.

        Args:
            state: from `clone_state`, of this environment or another one with the same turn budget.

        Returns:
            (observation, info), as `reset` does.

        Raises:
            InvalidOptionError: if the state has another turn budget.
        """
        episode = Episode.from_dict(state["episode"])
        if episode.turns != self.turns:
            raise InvalidOptionError(f"The state has {episode.turns} turns, this environment {self.turns}.")
        self._start(Task.from_dict(state["task"]), episode)
        return self._observe(), self._info(None, Turn("", ""))

    # parts

    def _draw(self) -> Task:
        if self._probabilities is None:
            return self._tasks[int(self.np_random.integers(len(self._tasks)))]
        return self._tasks[int(self.np_random.choice(len(self._tasks), p=self._probabilities))]

    def _choose(self, wanted: object) -> Task:
        if not isinstance(wanted, str):
            raise InvalidOptionError(f"options['task'] must be a task id, got {wanted!r:.200}.")
        known = {task.id: task for task in self._tasks}
        name = wanted.removesuffix("-v0")
        if name in known:
            return known[name]
        if self._pinned:
            raise unknown_name("task of this environment", wanted, known)
        task = load_task(wanted)
        self._check_tasks([task])
        return task

    def _check_tasks(self, tasks: Sequence[Task]) -> None:
        if self.pool == "local":  # others judge on another machine, or run nothing
            for task in tasks:
                check_requirements(task)

    def _warn_of_flaws(self) -> None:
        protocol = get_protocol(self.protocol).name
        flawed = [(task.id, flaws) for task in self._tasks if (flaws := task.flaws(protocol))]
        if not flawed:
            return
        task_id, flaws = flawed[0]
        others = f" So have {len(flawed) - 1} more of the {len(self._tasks)} tasks." if len(flawed) > 1 else ""
        gym.logger.warn(
            f"{task_id} has known flaws: {describe(flaws)}. A score on it may be won without the work.{others} "
            "`kernelgym_env.tasks.flaws.verified` leaves such tasks out; docs/audit.md says more."
        )

    def _start(self, task: Task, episode: Episode) -> None:
        kind = "cpu" if self.pool == "fake" else devices.device_kind(self.device)
        self._task = task.for_device(kind)
        self._episode = episode
        self._prompt = task_prompt(
            self._task, kind=kind, backend=self.backend, protocol=self.protocol, library_ops=self.library_ops
        )

    def _evaluate(self, action: str) -> Evaluation:
        assert self._task is not None and self._episode is not None
        best = self._episode.best_speedup
        submission = Submission(
            self._task,
            extract_source(action),
            backend=self.backend,
            protocol=self.protocol,
            device=self.device,
            library_ops=self.library_ops,
            previous_best=None if math.isnan(best) else best,
        )
        try:
            return pools.get(self.pool).submit(submission).result()
        except CancelledError:
            fault = "the pool was closed before the evaluation had started"
            return Evaluation(self._task.id, Status.FAULT, protocol=get_protocol(self.protocol).name, fault=fault)

    def _observe(self) -> dict[str, Any]:
        assert self._episode is not None
        turns = self._episode.given + self._episode.played
        return {
            "prompt": self._prompt,
            "history": tuple({"action": turn.action, "feedback": turn.feedback} for turn in turns),
            "feedback": turns[-1].feedback if turns else "",
            "turn": np.int64(self._episode.turn),
            "turns_left": np.int64(self._episode.turns_left),
        }

    def _info(self, evaluation: Evaluation | None, turn: Turn) -> dict[str, Any]:
        assert self._episode is not None
        shown = evaluation or Evaluation(self._episode.task_id, Status.FORMAT)
        data = shown.to_dict()
        if evaluation is None:
            data["status"] = ""
        return {
            "task_id": self._episode.task_id,
            "turn": self._episode.turn,
            "turns_left": self._episode.turns_left,
            "status": data["status"],
            "correct": evaluation is not None and evaluation.correct,
            "credited": evaluation is not None and evaluation.credited,
            "valid": evaluation is None or evaluation.valid,
            "score": turn.score,
            "speedup": shown.speedup,
            "speedup_low": shown.speedup_low,
            "speedup_high": shown.speedup_high,
            "speedup_compile": shown.speedup_compile,
            "coverage": shown.coverage,
            "best_speedup": self._episode.best_speedup,
            "finding_ids": tuple(finding.id for finding in shown.findings),
            "fault": shown.fault,
            "overhead_s": shown.overhead_s,
            "turn_returns": np.full(self.turns, np.nan),
            "evaluation": data,
        }

    def _print(self) -> None:
        assert self._episode is not None
        rendering.show(self._episode)


def _tasks_of(task: str | Task | Sequence[str | Task] | None) -> list[Task]:
    if task is None:
        return load_tasks("core")
    if isinstance(task, (str, Task)):
        return load_tasks(task)
    if not isinstance(task, Sequence) or not task:
        raise InvalidOptionError(f"task must be a text, a Task or a list of them, got {task!r:.200}.")
    return [found for entry in task for found in load_tasks(entry)]
