"""The part that all searches share: from positions to evaluations, within a budget, recorded as they come.

- `Explorer` -- expands positions.
- `Position` -- where a search stands: an episode, and the trial that led there.

Each expansion has a number, in the order in which a search asks for them, and what a search asks for follows from what
became of earlier ones. So a search that is called again on its folder asks for the same again, finds the recorded
answers, and goes on behind them.
"""

from __future__ import annotations

import json
import math
import os
import platform
import secrets
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from kernelgym_env._version import __version__
from kernelgym_env.episode import Episode, Turn
from kernelgym_env.errors import InvalidOptionError, check_whole
from kernelgym_env.keeping import locked, write_whole
from kernelgym_env.policies.base import Policy, actions_of
from kernelgym_env.prompts import messages
from kernelgym_env.runs import SEARCH, TURNS, record_evaluation, turn_of
from kernelgym_env.search.result import Budget, Trial
from kernelgym_env.store import Store, TurnRecord
from kernelgym_env.tasks.model import Task
from kernelgym_env.vector_env import KernelVectorEnv

__all__ = ["Explorer", "Position"]

_FEEDBACK = "error"


@dataclass(frozen=True)
class Position:
    """Where a search stands.

    Attributes:
        episode: what the policy is shown.
        trial: the last one on the way there, None at the start.
        best: greatest speed on the way there.
    """

    episode: Episode
    trial: Trial | None = None
    best: float = 0.0

    @property
    def turn(self) -> Turn:
        """The last turn.

        Raises:
            IndexError: at the start.
        """
        return self.episode.played[-1]


class Explorer:
    """Expands positions of one task.

    An evaluation that cannot be recorded, e.g. as the disk is full, ends the search with `NotRecordedError`; the same
    call goes on behind what was recorded.

    Args:
        task: the task.
        policy: who acts.
        method: the search's name.
        settings: its arguments, as plain data; a folder goes on only with the same ones.
        turns: greatest depth.
        budget: what may be spent.
        folder: where trials are recorded; None records nothing.
        seed: of what the policy draws.
        at_once: evaluations side by side.
        trial_done: called with each new trial, in the order of their numbers.
        policy_name: the policy's; a folder goes on only with the same one.
        options: of `KernelVectorEnv`: ``device``, ``pool``, ….

    Attributes:
        trials: those so far, in the order of their numbers.
        spent: whether the budget is used up.

    Raises:
        InvalidOptionError: if the folder holds another search, cannot be written, or another process searches in it,
            or if `at_once` is no whole number of at least 1.
    """

    def __init__(
        self,
        task: Task,
        policy: Policy,
        *,
        method: str,
        settings: Mapping[str, Any],
        turns: int,
        budget: Budget | None = None,
        folder: str | os.PathLike[str] | None = None,
        seed: int = 0,
        at_once: int = 16,
        trial_done: Callable[[Trial], None] | None = None,
        policy_name: str = "",
        options: Mapping[str, Any],
    ) -> None:
        check_whole("at_once", at_once)
        self.task, self.policy, self.method, self.turns = task, policy, method, turns
        self.budget, self.seed, self.at_once = budget or Budget(), seed, at_once
        self.trials: list[Trial] = []
        self.spent = False
        self._told = trial_done
        self._started = time.monotonic()
        self._envs = KernelVectorEnv(
            at_once, task=task, turns=turns, feedback=_FEEDBACK, autoreset_mode=AutoresetMode.DISABLED, **options
        )
        self._envs.reset(seed=seed)
        self._state = self._envs.clone_state(0)
        self._asked = 0
        self._store: Store | None = None
        self._known: dict[str, TurnRecord] = {}
        self._lost: set[str] = set()
        self._mended = False
        self._open_files = ExitStack()
        self.run_id = ""
        if folder is not None:
            plan = {
                "method": method,
                "policy": policy_name,
                "settings": dict(settings),
                "task": task.id,
                "hash": task.hash,
                "seed": seed,
                "options": {key: str(value) for key, value in sorted(options.items())},
            }
            try:
                self._open(Path(folder).expanduser(), json.loads(json.dumps(plan)))
            except BaseException:
                self.close()
                raise

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._started

    def start(self, shown: Sequence[Turn] = ()) -> Position:
        """The position of an empty episode, which shows these turns."""
        return Position(Episode(self.task.id, self.turns, given=tuple(shown)))

    def expand(self, positions: Sequence[Position]) -> list[Position]:
        """Let the policy act in each position once, and have it judged.

        Returns:
            The position behind each, in order; fewer where the budget ends, and then `spent` is true.
        """
        reached: list[Position] = []
        for first in range(0, len(positions), self.at_once):
            part = list(positions[first : first + self.at_once])
            left = self._left()
            if left < len(part):
                part, self.spent = part[: max(left, 0)], True
            reached += self._judged(part)
            if self.spent:
                break
        return reached

    def close(self) -> None:
        """End what waits, and give the folder back."""
        self._envs.close()
        self._open_files.close()

    # parts

    def _left(self) -> int:
        if self.budget.seconds is not None and self.seconds >= self.budget.seconds and not self._is_known():
            return 0
        bound = self.budget.evaluations
        return 1 << 30 if bound is None else bound - len(self.trials)

    def _is_known(self) -> bool:
        """Whether the next answer is recorded: going over these costs no time worth a bound."""
        return self._name(self._asked) in self._known

    def _name(self, number: int) -> str:
        return f"{self.task.id}@{number}"

    def _judged(self, part: Sequence[Position]) -> list[Position]:
        names = [self._name(self._asked + place) for place in range(len(part))]
        self._asked += len(part)
        records: dict[int, TurnRecord] = {
            place: self._known[name] for place, name in enumerate(names) if self._answers(place, part[place], name)
        }
        fresh = [place for place in range(len(part)) if place not in records]
        seen = [self._seen(place, part[place], names[place]) for place in fresh]
        if fresh:
            actions = actions_of(self.policy, seen)
            for place, action in zip(fresh, actions, strict=True):
                self._envs.submit(place, action.text)
            said = dict(zip(fresh, zip(seen, actions, strict=True), strict=True))
            while self._envs.pending:
                for turned in self._envs.collect():
                    observation, action = said[turned.index]
                    record = TurnRecord(
                        run_id=self.run_id,
                        episode_id=names[turned.index],
                        task_id=self.task.id,
                        turn=part[turned.index].episode.turn + 1,
                        prompt=messages(observation) if self._store is not None else "",
                        action=action.text,
                        evaluation=turned.info["evaluation"],
                        score=turned.info["score"],
                        reward=float(turned.reward),
                        terminated=not turned.truncated,
                        truncated=turned.truncated,
                        valid=turned.info["valid"],
                        tokens=action.tokens,
                        logprobs=action.logprobs,
                        versions={
                            "kernelgym_env": __version__,
                            "gymnasium": gym.__version__,
                            "python": platform.python_version(),
                            "search": self.method,
                        },
                        parent=_parent(part[turned.index]),
                    )
                    if self._store is not None:
                        self._store.append(record)
                    records[turned.index] = record
            self.policy.observe([record_evaluation(records[place]) for place in fresh])
        reached = []
        for place, position in enumerate(part):
            found = self._behind(position, records[place])
            assert found.trial is not None
            self.trials.append(found.trial)
            reached.append(found)
            if self._told is not None and place in fresh:
                self._told(found.trial)
        return reached

    def _answers(self, place: int, position: Position, name: str) -> bool:
        """Whether a trial is recorded, and what was recorded is an answer to what the policy would be shown now.

        That can only differ behind a fault that is made good, or a line that was lost: what follows may go on from
        another trial then.
        """
        self._mended |= name in self._lost or name not in self._known
        if name not in self._known or not self._mended:
            return name in self._known
        shown = messages(self._seen(place, position, name))
        return json.dumps(self._known[name].prompt) == json.dumps(shown)

    def _seen(self, place: int, position: Position, name: str) -> dict[str, Any]:
        """What the policy sees: the environment's observation, the task, and a seed that no other trial has."""
        state = {**self._state, "episode": position.episode.to_dict()}
        observation, _ = self._envs.restore_state(place, state)
        return {**observation, "task_id": self.task.id, "seed": zlib.crc32(f"{self.seed}/{name}".encode())}

    def _behind(self, position: Position, record: TurnRecord) -> Position:
        evaluation = record_evaluation(record)
        turn = turn_of(record, _FEEDBACK)
        trial = Trial(
            record.episode_id,
            _parent(position),
            position.episode.turn + 1,
            str(record.action),
            str(record.evaluation.get("status", "")),
            evaluation.speedup if evaluation.credited else math.nan,
            record.score,
            record.valid,
        )
        # a fault ends an episode; a search goes on from where it was
        episode = position.episode.after(turn) if record.valid else position.episode
        return Position(replace(episode, ended=False), trial, max(position.best, trial.speed))

    def _open(self, folder: Path, plan: dict[str, Any]) -> None:
        path = folder / SEARCH
        self._store = Store(folder / TURNS)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidOptionError(f"The folder {str(folder)!r} cannot be made: {error.strerror}.") from error
        self._open_files.enter_context(locked(folder))
        if path.exists():
            try:
                there = dict(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError) as error:
                raise InvalidOptionError(f"{folder} holds no search that can be read: {error}") from error
            self.run_id = there.pop("run_id", "")
            if differ := [key for key in plan if there.get(key) != plan[key]]:
                told = "; ".join(f"{key} {there.get(key)!r}, not {plan[key]!r}" for key in differ)
                raise InvalidOptionError(f"{folder} holds a search that was started otherwise: {told}.")
        else:
            if self._store.path.exists():
                raise InvalidOptionError(f"{folder} has turns ({TURNS}) and no search ({SEARCH}); give another folder.")
            self.run_id = f"{folder.resolve().name}-{secrets.token_hex(4)}"
            try:
                write_whole(path, json.dumps({**plan, "run_id": self.run_id}, indent=1) + "\n", private=False)
            except OSError as error:
                raise InvalidOptionError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from error
        if self._store.path.exists():
            for record in self._store.records():
                if record.valid:
                    self._known[record.episode_id] = record
                else:  # it is asked for again
                    self._lost.add(record.episode_id)


def _parent(position: Position) -> str:
    return "" if position.trial is None else position.trial.id
