"""What an episode is played by: the options of an environment and the way of one turn.

- `Position` -- where an episode stands.
- `Played` -- what a turn came to, in gymnasium's terms.
- `Rules` -- checks the options, draws tasks, and leads from one position to the next.

`KernelEnv` holds one position, `KernelVectorEnv` many. Both are `Rules`, so a turn is the same in either. Nothing here
keeps a position or a random state, and nothing waits for an evaluation but `Rules._evaluation`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from kernelgym_env import devices, pools, rendering, rewards
from kernelgym_env.episode import Episode, Turn, history_from
from kernelgym_env.errors import InvalidOptionError, MissingDataError, unknown_name
from kernelgym_env.evaluation.feedback import at_level, check_level
from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission, check_backend, check_device, check_library_ops
from kernelgym_env.limits import MAX_FEEDBACK_CHARS, MAX_PROMPT_CHARS, MAX_SOURCE_CHARS, clip
from kernelgym_env.prompts import extract_source, task_prompt
from kernelgym_env.spaces import UnicodeText
from kernelgym_env.tasks import Task, load_task, load_tasks
from kernelgym_env.tasks.flaws import describe
from kernelgym_env.tasks.kernelbench.requirements import check_requirements, missing
from kernelgym_env.tasks.mix import probabilities

__all__ = ["MAX_TURNS", "STOP", "Played", "Position", "Rules"]

STOP = "<stop>"
"""The action that ends an episode: nothing is evaluated, the reward is 0."""

MAX_TURNS = 1_000
"""Greatest turn budget."""

_OPTIONS = ("task", "history")
_KEPT = 512
_SHOWN = 3

# Sizing a task parses its source and a prompt is rendered from a template; episodes of the same task share both.
_sized = functools.lru_cache(maxsize=_KEPT)(Task.for_device)
_prompt_of = functools.lru_cache(maxsize=_KEPT)(task_prompt)


@dataclass(frozen=True)
class Position:
    """Where an episode stands.

    Attributes:
        task: the task, sized for the device.
        prompt: what the first message says.
        episode: the turns so far.
    """

    task: Task
    prompt: str
    episode: Episode


@dataclass(frozen=True)
class Played:
    """What a turn came to.

    Attributes:
        position: where the episode stands now.
        observation: of that position.
        reward: the turn's reward.
        terminated: whether the episode ended by its rules.
        truncated: whether infrastructure ended it.
        info: see `KernelEnv`.
    """

    position: Position
    observation: dict[str, Any]
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Rules:
    """Options of an environment, checked, and what follows from them for one episode.

    The arguments and errors are those of `kernelgym_env.env.KernelEnv`, which explains them.

    Attributes:
        action_space: of one episode.
        observation_space: of one episode.
    """

    metadata: dict[str, Any] = {"render_modes": list(rendering.MODES), "render_fps": 1}
    action_space: gym.Space[Any]
    observation_space: gym.Space[Any]
    render_mode: str | None

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
        **unknown: object,
    ) -> None:
        for name in unknown:  # the error of Python's own names a class that nobody has to know
            known = list(inspect.signature(Rules.__init__).parameters)[1:-1]
            raise unknown_name("option", name, known)
        if isinstance(turns, bool) or not isinstance(turns, (int, np.integer)) or not 1 <= turns <= MAX_TURNS:
            raise InvalidOptionError(f"turns must be a whole number from 1 to {MAX_TURNS}, got {turns!r}.")
        if render_mode is not None and render_mode not in rendering.MODES:
            raise unknown_name("render mode", render_mode, rendering.MODES)
        self.turns = int(turns)
        self.device = check_device(device)
        self.backend = check_backend(backend)
        if device == "cpu":
            devices.check_backend_kind(backend, "cpu")
        get_protocol(protocol)
        self.protocol = protocol
        self.library_ops = check_library_ops(library_ops)
        self.pool = pools.check_key(pool)
        self.feedback = check_level(feedback)
        self.render_mode = render_mode
        self._pinned = task is not None
        self._tasks = self._runnable(_tasks_of(task))
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

    # where an episode begins

    def _begin(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> Position:
        """The start of an episode, as `reset` makes it."""
        options = options or {}
        for name in options:
            if name not in _OPTIONS:
                raise unknown_name("reset option", name, _OPTIONS)
        given = history_from(options.get("history") or ())
        wanted = options.get("task")
        # drawn in any case, so that an option does not shift later draws
        drawn = self._draw(rng)
        task = drawn if wanted is None else self._choose(wanted)
        return self._position(task, Episode(task.id, self.turns, given))

    def _continue(self, state: Mapping[str, Any]) -> Position:
        """The position of a state that `_state` gave."""
        episode = Episode.from_dict(state["episode"])
        if episode.turns != self.turns:
            raise InvalidOptionError(f"The state has {episode.turns} turns, this environment {self.turns}.")
        return self._position(Task.from_dict(state["task"]), episode)

    @staticmethod
    def _state(position: Position) -> dict[str, Any]:
        """A position as plain data."""
        return {"task": position.task.to_dict(), "episode": position.episode.to_dict()}

    def _position(self, task: Task, episode: Episode) -> Position:
        kind = "cpu" if self.pool == "fake" else devices.device_kind(self.device)
        sized = _sized(task, kind)
        prompt = _prompt_of(
            sized, kind=kind, backend=self.backend, protocol=self.protocol, library_ops=self.library_ops
        )
        return Position(sized, prompt, episode)

    def _draw(self, rng: np.random.Generator) -> Task:
        if self._probabilities is None:
            return self._tasks[int(rng.integers(len(self._tasks)))]
        return self._tasks[int(rng.choice(len(self._tasks), p=self._probabilities))]

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
        if self.pool == "local":
            check_requirements(task)
        return task

    def _runnable(self, tasks: list[Task]) -> list[Task]:
        """The tasks that can run on this machine; a warning names what is left out of several."""
        if self.pool != "local":  # others judge on another machine, or run nothing
            return tasks
        lacking = [missing(task) for task in tasks]
        kept = [task for task, lack in zip(tasks, lacking, strict=True) if not lack]
        why = list(dict.fromkeys(filter(None, lacking)))
        if not kept:
            all_of = f"None of the {len(tasks)} tasks can run on this machine: " if len(tasks) > 1 else ""
            raise MissingDataError(all_of + why[0])
        if why:
            gym.logger.warn(
                "%s",  # a folder's name may have a percent sign
                f"{len(tasks) - len(kept)} of the {len(tasks)} tasks cannot run on this machine and are left out: "
                f"{'; '.join(why[:_SHOWN])}{'; …' if len(why) > _SHOWN else ''}",
            )
        return kept

    def _warn_of_flaws(self) -> None:
        protocol = get_protocol(self.protocol)
        flawed = [(task.id, flaws) for task in self._tasks if (flaws := task.flaws(protocol))]
        if not flawed:
            return
        task_id, flaws = flawed[0]
        others = f" So have {len(flawed) - 1} more of the {len(self._tasks)} tasks." if len(flawed) > 1 else ""
        gym.logger.warn(
            f"{task_id} has known flaws: {describe(flaws)}. A score on it may be won without the work.{others} "
            "`kernelgym_env.tasks.flaws.verified` leaves such tasks out; docs/audit.md says more."
        )

    # one turn

    def _submission(self, position: Position, action: object) -> Submission | None:
        """What an action asks to be evaluated; None for `STOP`.

        Raises:
            gymnasium.error.ResetNeeded: if the episode is over.
            gymnasium.error.InvalidAction: if the action is not text.
        """
        if position.episode.ended:
            raise gym.error.ResetNeeded("The episode is over; call reset() to start the next one.")
        if not isinstance(action, str):
            raise gym.error.InvalidAction(f"An action is text, got {type(action).__name__}: {action!r:.100}")
        if action.strip() == STOP:
            return None
        best = position.episode.best_speedup
        return Submission(
            position.task,
            extract_source(action),
            backend=self.backend,
            protocol=self.protocol,
            device=self.device,
            library_ops=self.library_ops,
            previous_best=None if math.isnan(best) else best,
        )

    def _send(self, submission: Submission) -> Future[Evaluation]:
        return pools.get(self.pool).submit(submission)

    def _evaluation(self, position: Position, future: Future[Evaluation]) -> Evaluation:
        """Wait for an evaluation; one that the pool cancelled is a fault."""
        try:
            return future.result()
        except CancelledError:
            fault = "the pool was closed before the evaluation had started"
            return Evaluation(position.task.id, Status.FAULT, protocol=get_protocol(self.protocol).name, fault=fault)

    def _after(self, position: Position, action: str, evaluation: Evaluation | None) -> Played:
        """What a turn came to.

        Args:
            position: where the episode stood.
            action: what was played.
            evaluation: what became of it; None for `STOP`.
        """
        if evaluation is None:
            turn = Turn(STOP, "You ended the episode.")
        else:
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
        episode = position.episode.after(turn, stop=evaluation is None, fault=fault)
        reached = Position(position.task, position.prompt, episode)
        ended = episode.ended and not fault
        return Played(
            reached, self._observe(reached), turn.score, ended, fault, self._info(reached, evaluation, turn.score)
        )

    @staticmethod
    def _observe(position: Position) -> dict[str, Any]:
        episode = position.episode
        turns = episode.given + episode.played
        return {
            "prompt": position.prompt,
            "history": tuple({"action": turn.action, "feedback": turn.feedback} for turn in turns),
            "feedback": turns[-1].feedback if turns else "",
            "turn": np.int64(episode.turn),
            "turns_left": np.int64(episode.turns_left),
        }

    def _info(self, position: Position, evaluation: Evaluation | None = None, score: float = 0.0) -> dict[str, Any]:
        """The `info` of a position; without an evaluation that of a reset or a stop."""
        episode = position.episode
        shown = evaluation or Evaluation(episode.task_id, Status.FORMAT)
        data = shown.to_dict()
        if evaluation is None:
            data["status"] = ""
        return {
            "task_id": episode.task_id,
            "turn": episode.turn,
            "turns_left": episode.turns_left,
            "status": data["status"],
            "correct": evaluation is not None and evaluation.correct,
            "credited": evaluation is not None and evaluation.credited,
            "valid": evaluation is None or evaluation.valid,
            "score": score,
            "speedup": shown.speedup,
            "speedup_low": shown.speedup_low,
            "speedup_high": shown.speedup_high,
            "speedup_compile": shown.speedup_compile,
            "coverage": shown.coverage,
            "roofline_fraction": shown.roofline_fraction,
            "best_speedup": episode.best_speedup,
            "finding_ids": tuple(finding.id for finding in shown.findings),
            "fault": shown.fault,
            "overhead_s": shown.overhead_s,
            "turn_returns": np.full(self.turns, np.nan),
            "evaluation": data,
        }


def _tasks_of(task: str | Task | Sequence[str | Task] | None) -> list[Task]:
    if task is None:
        return load_tasks("core")
    if isinstance(task, (str, Task)):
        return load_tasks(task)
    if not isinstance(task, Sequence) or not task:
        raise InvalidOptionError(f"task must be a text, a Task or a list of them, got {task!r:.200}.")
    return [found for entry in task for found in load_tasks(entry)]
