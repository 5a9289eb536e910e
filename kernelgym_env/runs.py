"""Runs: a policy on a set of tasks, several episodes each, in a folder that can be gone on with after any break.

- `Plan` -- what is to be played; kept in ``run.json``.
- `Run` -- the folder: the plan, the turns in ``turns.jsonl``, and what is left to play.
- `play` -- play what is left.
- `turn_files` -- the files of turns in a folder.

A turn is written before the next one of its episode starts, under an id that follows from task and sample. So a process
that is killed loses at most the turns in flight, and whoever goes on finds each recorded turn once and continues the
episode behind it: the environment's state is made again from the records. An episode that a fault ended, or of which a
line was lost, is played anew, under the next attempt's id.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from kernelgym_env._version import __version__
from kernelgym_env.env import MAX_TURNS, KernelEnv
from kernelgym_env.episode import Episode, Turn
from kernelgym_env.errors import InvalidOptionError, check_whole
from kernelgym_env.evaluation.feedback import at_level
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.keeping import locked, write_new
from kernelgym_env.limits import MAX_SOURCE_CHARS, clip
from kernelgym_env.policies.base import Action, Policy, actions_of
from kernelgym_env.prompts import messages
from kernelgym_env.store import Store, TurnRecord, is_whole
from kernelgym_env.tasks.model import Task

__all__ = ["PLAN", "SEARCH", "TURNS", "Plan", "Run", "Slot", "play", "turn_files"]

PLAN, TURNS = "run.json", "turns.jsonl"
"""Names of the files of a run."""

SEARCH = "search.json"
"""Name of the file that a search's folder has in place of a run's plan."""

_SCHEMA = 1
_FEEDBACK = "error"


@dataclass(frozen=True)
class Plan:
    """What is to be played.

    Attributes:
        policy: its name, see `kernelgym_env.policies.choosing.make_policy`; told in reports.
        tasks: levels by task id: the fixed set that figures are over.
        turns: turns of an episode.
        samples: episodes a task.
        options: further arguments of `KernelEnv`: ``device``, ``backend``, ``protocol``, ``library_ops``, ``pool``.
        seed: of what the policy draws.
        hashes: hash of each task as it was at the start, by id.
        run_id: the run's, in each of its turns; `Run.start` draws it, so that a folder may be renamed.
        schema: version of this form.

    Raises:
        InvalidOptionError: for a number outside its range, a value of another kind, or no tasks.
    """

    policy: str
    tasks: dict[str, int]
    turns: int = 4
    samples: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    hashes: dict[str, str] = field(default_factory=dict)
    run_id: str = ""
    schema: int = _SCHEMA

    def __post_init__(self) -> None:
        for name in ("policy", "run_id"):
            if not isinstance(getattr(self, name), str):
                raise InvalidOptionError(f"{name} must be a text, got {getattr(self, name)!r:.100}.")
        for name in ("tasks", "options", "hashes"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise InvalidOptionError(f"{name} must have values by name, got {value!r:.100}.")
        if not self.tasks:
            raise InvalidOptionError("A run needs at least one task.")
        for level in self.tasks.values():
            check_whole("The level of a task", level, 0)
        if not all(isinstance(digest, str) for digest in self.hashes.values()):
            raise InvalidOptionError(f"The hash of a task must be a text, got {self.hashes!r:.100}.")
        if check_whole("turns", self.turns) > MAX_TURNS:
            raise InvalidOptionError(f"turns must be from 1 to {MAX_TURNS}, got {self.turns!r}.")
        check_whole("samples", self.samples)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise InvalidOptionError(f"seed must be a whole number, got {self.seed!r:.100}.")

    @classmethod
    def of(cls, policy: str, tasks: Sequence[Task], **options: Any) -> Plan:
        """The plan for these tasks; `options` are the other attributes.

        Raises:
            InvalidOptionError: as the class does, and for two tasks with the same id.
        """
        levels = {task.id: task.level for task in tasks}
        if len(levels) < len(tasks):
            raise InvalidOptionError("Two of the tasks have the same id; name each once.")
        return cls(policy, levels, hashes={task.id: task.hash for task in tasks}, **options)


@dataclass(frozen=True)
class Slot:
    """An episode that is to be played, or gone on with.

    Attributes:
        task_id: the task.
        sample: which of the task's episodes, from 0.
        attempt: from 0, one more after each fault, or where a turn was lost from the file.
        played: its recorded turns.
    """

    task_id: str
    sample: int
    attempt: int = 0
    played: tuple[TurnRecord, ...] = ()

    @property
    def episode_id(self) -> str:
        """Follows from task, sample and attempt."""
        return f"{self.task_id}#{self.sample}.{self.attempt}"


class Run:
    """The folder of a run.

    Args:
        folder: made by `start`.

    Attributes:
        folder: where it is.
        store: its turns.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser()
        self.store = Store(self.folder / TURNS)

    def start(self, plan: Plan) -> Plan:
        """Make the folder with its plan; where it has one already, that has to be the same.

        Returns:
            The plan of the folder, with the run's id.

        Raises:
            InvalidOptionError: if the folder has another plan (it says what differs), or turns without a plan, or
                cannot be made.
        """
        path = self.folder / PLAN
        if path.exists():
            there = self.plan()
            if differ := _differences(there, plan):
                raise InvalidOptionError(
                    f"{self.folder} holds a run that was started otherwise: {'; '.join(differ)}. Give another folder, "
                    f"or the options that it was started with."
                )
            return there
        if self.store.path.exists():
            raise InvalidOptionError(f"{self.folder} has turns ({TURNS}) and no plan ({PLAN}); give another folder.")
        new = replace(plan, run_id=f"{self.folder.resolve().name}-{secrets.token_hex(4)}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_new(path, json.dumps(asdict(new), indent=1) + "\n")
        except FileExistsError:
            if path.exists():  # another process was faster by a moment
                return self.start(plan)
            raise InvalidOptionError(
                f"The folder {str(self.folder)!r} cannot be made: a file is in its place."
            ) from None
        except OSError as error:
            raise InvalidOptionError(f"The folder {str(self.folder)!r} cannot be made: {error.strerror}.") from error
        return new

    def plan(self) -> Plan:
        """Its plan.

        Raises:
            InvalidOptionError: if the folder has none that can be read.
        """
        path = self.folder / PLAN
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data.get("schema", _SCHEMA) > _SCHEMA:
                raise InvalidOptionError(
                    f"{path} is of a newer version (schema {data['schema']}, this reads {_SCHEMA})."
                )
            return Plan(**data)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise InvalidOptionError(f"{self.folder} holds no run that can be read: {error}") from error

    def episodes(self) -> list[list[TurnRecord]]:
        """The recorded episodes, each turn once."""
        return list(self.store.episodes()) if self.store.path.exists() else []

    def left(self, plan: Plan) -> list[Slot]:
        """What is left to play, in the order of tasks and samples."""
        found = {episode[0].episode_id: episode for episode in self.episodes()}
        latest: dict[str, int] = {}  # an earlier attempt may have been lost from the file whole
        for name, _, attempt in (episode_id.rpartition(".") for episode_id in found):
            latest[name] = max(latest.get(name, 0), int(attempt) if attempt.isdecimal() else 0)
        slots = []
        for sample in range(plan.samples):
            for task_id in plan.tasks:
                slot = Slot(task_id, sample, latest.get(f"{task_id}#{sample}", 0))
                episode = found.get(slot.episode_id, [])
                if episode and (episode[-1].truncated or not is_whole(episode)):
                    slots.append(replace(slot, attempt=slot.attempt + 1))
                elif not episode or not episode[-1].terminated:
                    slots.append(replace(slot, played=tuple(episode)))
        return slots

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from playing the same run; given back when the process ends, however it does.

        Raises:
            InvalidOptionError: if another process is playing it, or the folder cannot be written.
        """
        with locked(self.folder):
            yield


def play(
    run: Run,
    plan: Plan,
    tasks: Sequence[Task],
    policy: Policy,
    *,
    at_once: int = 1,
    turn_done: Callable[[TurnRecord], None] | None = None,
    interrupted: Callable[[], None] | None = None,
) -> int:
    """Play what is left of a run.

    The policy sees observations of `KernelEnv` with ``task_id`` and ``seed`` besides; the seed follows from the plan's,
    the task, the sample and the turn.

    Args:
        run: the folder, with its plan.
        plan: the plan.
        tasks: the plan's tasks.
        policy: who acts; it is asked for a batch of actions at a time.
        at_once: episodes that are played side by side.
        turn_done: called after each turn that was recorded, in the caller's thread.
        interrupted: called at Ctrl-C, before the turns in flight are waited for.

    Returns:
        Number of episodes that ended in a fault; another call plays them anew.

    Raises:
        InvalidOptionError: if a task is not the one that the run was started with, another process plays the run,
            `at_once` is no whole number of at least 1, or the policy gives something else than actions.
        NotRecordedError: if a turn cannot be written, e.g. as the disk is full; another call goes on behind what was.
    """
    check_whole("at_once", at_once)
    known = {task.id: task for task in tasks}
    for task_id, digest in plan.hashes.items():
        if task_id not in known or known[task_id].hash != digest:
            raise InvalidOptionError(f"The task {task_id!r} is not the one that the run was started with.")
    faults = 0
    with run.locked(), ThreadPoolExecutor(at_once) as threads:
        waiting = list(reversed(run.left(plan)))
        active: list[_Playing] = []
        try:
            while waiting or active:
                while waiting and len(active) < at_once:
                    slot = waiting.pop()
                    active.append(_Playing(run, plan, known[slot.task_id], slot))
                actions = actions_of(policy, [episode.observation for episode in active])
                done = list(threads.map(_Playing.step, active, actions))
                policy.observe([record_evaluation(record) for record in done])
                for record in done:
                    if turn_done is not None:
                        turn_done(record)
                faults += sum(record.truncated for record in done)
                for episode, record in zip(active, done, strict=True):
                    if record.terminated or record.truncated:
                        episode.env.close()
                active = [
                    episode
                    for episode, record in zip(active, done, strict=True)
                    if not record.terminated and not record.truncated
                ]
        except KeyboardInterrupt:
            if interrupted is not None:
                interrupted()
            raise  # leaving the block waits for the threads, which record what they are at
        finally:
            for episode in active:
                episode.env.close()
    return faults


def turn_files(where: Path) -> list[Path]:
    """The files of turns at a path: itself; that of a run's or a search's folder; or those of a search's tasks."""
    if where.is_file():
        return [where]
    own = where / TURNS
    if own.is_file():
        return [own]
    return sorted(plan.parent / TURNS for plan in where.glob(f"*/{SEARCH}") if (plan.parent / TURNS).is_file())


def record_evaluation(record: TurnRecord) -> Evaluation:
    """The evaluation of a record; one with the status ``format`` for the agent's stop."""
    data = dict(record.evaluation)
    if not data.get("status"):
        data = {"task_id": record.task_id, "status": "format"}
    return Evaluation.from_dict(data)


def _differences(there: Plan, wanted: Plan) -> list[str]:
    """What a plan was started with and is now asked to be, in words."""
    found = []
    old, new = asdict(there), asdict(wanted)
    for name in ("policy", "turns", "samples", "seed"):
        if old[name] != new[name]:
            found.append(f"{name} {old[name]!r}, not {new[name]!r}")
    for name in sorted({*there.options, *wanted.options}):
        one, two = there.options.get(name), wanted.options.get(name)
        if one != two:
            found.append(f"{name} {one!r}, not {two!r}")
    if there.tasks != wanted.tasks:
        only = sorted(set(there.tasks) ^ set(wanted.tasks))
        found.append(f"{len(there.tasks)} tasks, not {len(wanted.tasks)} (in one alone: {', '.join(only[:3])})")
    elif there.hashes != wanted.hashes:
        changed = sorted(task_id for task_id in there.tasks if there.hashes.get(task_id) != wanted.hashes.get(task_id))
        found.append(f"another content of {', '.join(changed[:3])}")
    return found


class _Playing:
    """An episode that is being played."""

    def __init__(self, run: Run, plan: Plan, task: Task, slot: Slot) -> None:
        self.run, self.plan, self.slot, self.turn = run, plan, slot, len(slot.played)
        self.env = KernelEnv(task=task, turns=plan.turns, feedback=_FEEDBACK, **plan.options)
        observation, _ = self.env.reset(seed=plan.seed)
        if slot.played:
            state = self.env.clone_state()
            state["episode"] = _episode(task.id, plan.turns, slot.played).to_dict()
            observation, _ = self.env.restore_state(state)
        self.observation = self._seen(observation)

    def _seen(self, observation: dict[str, Any]) -> dict[str, Any]:
        # the attempt is in the seed: the same source would meet the same simulated fault again
        name = f"{self.plan.seed}/{self.slot.episode_id}/{self.turn}"
        return {**observation, "task_id": self.slot.task_id, "seed": zlib.crc32(name.encode())}

    def step(self, action: Action) -> TurnRecord:
        prompt = messages(self.observation)
        observation, reward, terminated, truncated, info = self.env.step(action.text)
        self.turn += 1
        record = TurnRecord(
            run_id=self.plan.run_id,
            episode_id=self.slot.episode_id,
            task_id=self.slot.task_id,
            turn=self.turn,
            prompt=prompt,
            action=action.text,
            evaluation=info["evaluation"],
            score=info["score"],
            reward=float(reward),
            terminated=terminated,
            truncated=truncated,
            valid=info["valid"],
            tokens=action.tokens,
            logprobs=action.logprobs,
            versions={
                "kernelgym_env": __version__,
                "gymnasium": gym.__version__,
                "python": platform.python_version(),
                "policy": self.plan.policy,
            },
        )
        self.run.store.append(record)
        self.observation = self._seen(observation)
        return record


def _episode(task_id: str, turns: int, played: Sequence[TurnRecord]) -> Episode:
    """The state behind recorded turns, none of which ended the episode."""
    episode = Episode(task_id, turns)
    for record in played:
        episode = episode.after(turn_of(record, _FEEDBACK))
    return episode


def turn_of(record: TurnRecord, feedback: str) -> Turn:
    """A recorded turn as an episode has it.

    Args:
        record: of a turn in which something was judged.
        feedback: the level of what the policy was told.
    """
    evaluation = record_evaluation(record)
    return Turn(
        clip(str(record.action), MAX_SOURCE_CHARS),
        at_level(evaluation, feedback),
        evaluation.status.value,
        record.score,
        evaluation.speedup,
        evaluation.speedup_low,
        evaluation.speedup_high,
    )
