"""A report: all figures of a run as data.

- `Report` -- the figures, in all and by level and turn.
- `make_report` -- from the samples of a run.
- `load` -- from what a user names: a run's folder, or a file of trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym_env.errors import InvalidOptionError, MissingDataError
from kernelgym_env.reports.figures import (
    Figure,
    by_level,
    by_turn,
    cannot_count,
    figures,
    least_samples,
    measured,
    statuses,
)
from kernelgym_env.reports.samples import TaskSamples, check_select, from_episodes, reached
from kernelgym_env.runs import PLAN, Run, turn_files
from kernelgym_env.store import Store, TurnRecord
from kernelgym_env.tasks import registry
from kernelgym_env.tasks.kernelbench.ids import parse_id
from kernelgym_env.tasks.kernelbench.runs import is_run

__all__ = ["Loaded", "Report", "load", "make_report"]


@dataclass(frozen=True)
class Loaded:
    """What a user named.

    Attributes:
        name: of the folder or file.
        tasks: the samples on the fixed set of tasks.
        facts: how it was played, for people.
    """

    name: str
    tasks: list[TaskSamples]
    facts: dict[str, str]


@dataclass(frozen=True)
class Report:
    """All figures of a run.

    Attributes:
        name: the run's.
        facts: how it was played.
        select: which turns of a sample count.
        overall: over all tasks: for each baseline that was measured, of one sample and of the best of all; none where
            every episode was lost.
        levels: of one sample, over eager, by level.
        turns: of one sample, over eager, by number of turns: the best within them.
        statuses: how turns ended.
        tasks: a row for each task.
        notes: what a reader has to know: episodes that are missing or lack a turn, faults, tasks that were left out.
    """

    name: str
    facts: dict[str, str]
    select: str | int
    overall: list[Figure]
    levels: dict[int, list[Figure]]
    turns: dict[int, list[Figure]]
    statuses: dict[str, int]
    tasks: list[dict[str, Any]]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "facts": self.facts,
            "select": self.select,
            "figures": [figure.to_dict() for figure in self.overall],
            "levels": {str(level): [figure.to_dict() for figure in found] for level, found in self.levels.items()},
            "turns": {str(turn): [figure.to_dict() for figure in found] for turn, found in self.turns.items()},
            "statuses": self.statuses,
            "tasks": self.tasks,
            "notes": self.notes,
        }


def load(path: str | Path) -> Loaded:
    """The samples of a run's folder, over the tasks of its plan; or of a search's, or of a file of trajectories, over
    the tasks in them.

    Raises:
        MissingDataError: if there is neither.
        InvalidOptionError: if it holds no run or no trajectories that can be read.
    """
    where = Path(path).expanduser()
    episodes: Sequence[Sequence[TurnRecord]]
    if where.is_dir() and (where / PLAN).exists():
        run = Run(where)
        plan = run.plan()
        facts = {
            "policy": plan.policy,
            "tasks": str(len(plan.tasks)),
            "turns": str(plan.turns),
            "samples a task": str(plan.samples),
            **{name: str(value) for name, value in plan.options.items() if value is not None},
        }
        episodes = run.episodes()
        return Loaded(where.resolve().name, from_episodes(episodes, plan.tasks), {**facts, **_judged(episodes)})
    if not (files := turn_files(where)):
        if is_run(where):
            raise MissingDataError(
                f"{str(path)!r} is a folder of KernelBench. Its figures need the times of a baseline: "
                f"`kernelgym_env.reports.samples.from_kernelbench`, with an example at the end of docs/runs.md."
            )
        raise MissingDataError(
            f"There is no run at {str(path)!r}: it is neither a folder that `kernelgym run` made (with {PLAN}), nor "
            f"one of `kernelgym search`, nor a file of trajectories."
        )
    episodes = [episode for file in files for episode in Store(file).episodes()]
    if not episodes:
        raise InvalidOptionError(f"{str(path)!r} holds no trajectories.")
    levels = {episode[0].task_id: _level(episode[0].task_id) for episode in episodes}
    return Loaded(where.name, from_episodes(episodes, levels), {"tasks": str(len(levels)), **_judged(episodes)})


def _judged(episodes: Sequence[Sequence[TurnRecord]]) -> dict[str, str]:
    """Where and how the turns were judged, as their evaluations say."""
    evaluations = [record.evaluation for episode in episodes for record in episode if record.evaluation.get("status")]
    found = {
        "judged on": {str(evaluation.get("device") or "") for evaluation in evaluations},
        "protocol": {str(evaluation.get("protocol") or "") for evaluation in evaluations},
    }
    return {name: ", ".join(sorted(values - {""})) for name, values in found.items() if values - {""}}


def _level(task_id: str) -> int:
    if problem := parse_id(task_id):
        return problem[0]
    return registry.find_task(task_id).level if registry.is_task_id(task_id) else 0


def make_report(loaded: Loaded, *, select: str | int = "best", **options: Any) -> Report:
    """All figures of a run.

    Args:
        loaded: from `load`.
        select: which turns of a sample count, see `kernelgym_env.reports.samples.reached`.
        **options: ``thresholds``, ``strict``, ``resamples`` and ``seed`` of `kernelgym_env.reports.figures.figures`.

    Raises:
        InvalidOptionError: for an option that `figures` refuses.
        UnknownNameError: for an unknown selection.
    """
    tasks = loaded.tasks
    most = least_samples(tasks)
    overall: list[Figure] = []
    check_select(select)
    for baseline in measured(tasks) if len(cannot_count(tasks)) < len(tasks) else ():
        for k in dict.fromkeys((1, most)):
            found = figures(tasks, k, baseline=baseline, select=select, **options)
            overall += [figure for figure in found if figure.baseline or baseline == "eager"]
    return Report(
        loaded.name,
        loaded.facts,
        select,
        overall,
        by_level(tasks, select=select, **options),
        by_turn(tasks, **options),
        statuses(tasks),
        [_row(task, select) for task in tasks],
        _notes(tasks, select),
    )


def _row(task: TaskSamples, select: str | int) -> dict[str, Any]:
    found = [reached(sample, select) for sample in task.samples]
    speeds = [speed for _, speed in found if not math.isnan(speed)]
    return {
        "task_id": task.task_id,
        "level": task.level,
        "samples": len(found),
        "correct": sum(correct for correct, _ in found),
        "speedup": max(speeds, default=math.nan),
        "faults": task.faults,
        "unfinished": task.unfinished,
        "broken": task.broken,
    }


def _notes(tasks: Sequence[TaskSamples], select: str | int) -> list[str]:
    notes = []
    lost = cannot_count(tasks)
    empty = [task.task_id for task in tasks if not task.samples and task.task_id not in lost]
    unfinished, faults, broken = (
        sum(getattr(task, name) for task in tasks) for name in ("unfinished", "faults", "broken")
    )
    if empty:
        notes.append(f"{len(empty)} of {len(tasks)} tasks have no finished episode and count as not solved.")
    if lost:
        why = (
            "each of their episodes ended in a fault or lacks a turn"
            if broken
            else "faults ended each of their episodes"
        )
        notes.append(f"{len(lost)} tasks are left out, as {why}: {', '.join(lost[:5])}.")
    if unfinished:
        notes.append(f"{unfinished} episodes have not come to their end and are left out.")
    if faults:
        notes.append(f"{faults} episodes ended in a fault and are left out.")
    if broken:
        notes.append(f"{broken} episodes lack a turn in the file and are left out.")
    untimed = sum(
        correct and math.isnan(speed)
        for task in tasks
        for correct, speed in (reached(sample, select) for sample in task.samples)
    )
    if untimed:
        notes.append(f"{untimed} correct samples were not timed; they count as correct, and not as fast.")
    counts = {len(task.samples) for task in tasks if task.samples}
    if len(counts) > 1:
        notes.append(f"Tasks have {min(counts)} to {max(counts)} samples; the best of {min(counts)} is told.")
    return notes
