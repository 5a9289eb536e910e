"""Figures of a run over a fixed set of tasks, with intervals.

- `Figure` -- one figure with its interval and what it is about.
- `figures` -- correctness, fast_p, mean and geometric mean of the speedup, for k samples a task.
- `by_level`, `by_turn` -- the same for each level, and for each number of turns.
- `statuses` -- how turns ended.
- `milestones` -- of many numbers those that are told.
- `cannot_count` -- tasks of which every sample was lost.

For k samples of n each figure is the unbiased estimate of what the best of k fresh samples reaches (`pass_at_k`,
`best_at_k`): with k = 1 the mean over samples, with k = n the best of them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.metrics import Interval, best_at_k, bootstrap, pass_at_k
from kernelgym_env.reports.samples import BASELINES, TaskSamples, check_select, reached

__all__ = [
    "THRESHOLDS",
    "Figure",
    "TaskFigures",
    "by_level",
    "by_turn",
    "cannot_count",
    "figures",
    "least_samples",
    "measured",
    "milestones",
    "names",
    "of_task",
    "overall",
    "statuses",
]

THRESHOLDS = (1.0, 1.2, 1.5, 2.0)
"""The p of fast_p that are told."""


@dataclass(frozen=True)
class Figure:
    """A figure with its interval.

    Attributes:
        name: ``correct``, ``fast_<p>``, ``mean_speedup`` (0 where nothing was correct) or ``geomean`` (of what was
            correct).
        baseline: what speedups are over, ``""`` for ``correct``.
        k: samples a task.
        select: which turns of a sample count.
        tasks: number of tasks that it is over.
        value: NaN where it has none.
        low: lower end of the 95% interval over tasks.
        high: upper end.
    """

    name: str
    baseline: str
    k: int
    select: str | int
    tasks: int
    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class TaskFigures:
    """What k samples of one task are expected to reach.

    Attributes:
        correct: probability that one of them is correct.
        fast: by threshold: probability that one is correct and faster than that.
        speedup: expected greatest speedup, 0 where nothing was correct or timed.
        log_speedup: expected logarithm of the greatest speedup, times `timed`.
        timed: probability that one of them is correct and timed.
    """

    correct: float
    fast: tuple[float, ...]
    speedup: float
    log_speedup: float
    timed: float


def names(thresholds: Sequence[float] = THRESHOLDS) -> list[str]:
    """Names of all figures in the order in which they are told.

    >>> names([1.0, 1.5])
    ['correct', 'fast_1', 'fast_1.5', 'mean_speedup', 'geomean']
    """
    return ["correct", *(f"fast_{p:g}" for p in thresholds), "mean_speedup", "geomean"]


def of_task(
    task: TaskSamples,
    k: int,
    *,
    baseline: str = "eager",
    select: str | int = "best",
    thresholds: Sequence[float] = THRESHOLDS,
    strict: bool = True,
) -> TaskFigures:
    """What k samples of a task are expected to reach. A task without samples counts as not solved.

    Args:
        task: its samples.
        k: 1 to their number.
        baseline: one of `BASELINES`.
        select: see `reached`.
        thresholds: the p of fast_p.
        strict: whether a speedup of exactly p is not enough, as KernelBench has it.

    Raises:
        InvalidOptionError: for a k beyond the number of samples, naming the task.
        UnknownNameError: for an unknown baseline or selection.
    """
    if not task.samples:
        return TaskFigures(0.0, (0.0,) * len(thresholds), 0.0, 0.0, 0.0)
    n = len(task.samples)
    if not 1 <= k <= n:
        raise InvalidOptionError(f"{task.task_id} has {n} samples that count, so k must be from 1 to {n}, got {k!r}.")
    found = [reached(sample, select, baseline) for sample in task.samples]
    speeds = np.array([speed for _, speed in found])
    with np.errstate(invalid="ignore"):
        fast = tuple(
            pass_at_k(n, int(np.sum(speeds > p if strict else speeds >= p)), k) if p > 0 or not strict else 0.0
            for p in thresholds
        )
    correct = pass_at_k(n, sum(right for right, _ in found), k)
    fast = tuple(correct if p == 0 else share for p, share in zip(thresholds, fast, strict=True))
    known = speeds[~np.isnan(speeds)]
    return TaskFigures(
        correct,
        fast,
        best_at_k(np.nan_to_num(speeds, nan=0.0), k),
        _expected_log(known, n, k),
        pass_at_k(n, len(known), k),
    )


def _expected_log(known: np.ndarray, n: int, k: int) -> float:
    """The expected logarithm of the best of k out of n samples, where those without a speedup count as nothing."""
    logs = np.log(known)
    if not logs.size:
        return 0.0
    # shifted so that failures, at 0, are the smallest; the shift counts where at least one has a speedup
    shift = float(logs.min())
    padded = np.concatenate([logs - shift, np.zeros(n - logs.size)])
    return best_at_k(padded, k) + shift * pass_at_k(n, logs.size, k)


def _figure(name: str, place: int) -> Callable[[Sequence[TaskFigures]], float]:
    def share(tasks: Sequence[TaskFigures]) -> float:
        return math.fsum(task.fast[place] for task in tasks) / len(tasks)

    def geometric(tasks: Sequence[TaskFigures]) -> float:
        timed = math.fsum(task.timed for task in tasks)
        return math.exp(math.fsum(task.log_speedup for task in tasks) / timed) if timed else math.nan

    def correct(tasks: Sequence[TaskFigures]) -> float:
        return math.fsum(task.correct for task in tasks) / len(tasks)

    def mean(tasks: Sequence[TaskFigures]) -> float:
        return math.fsum(task.speedup for task in tasks) / len(tasks)

    return {"correct": correct, "mean_speedup": mean, "geomean": geometric}.get(name, share)


def overall(name: str, tasks: Sequence[TaskFigures], thresholds: Sequence[float] = THRESHOLDS) -> float:
    """One figure over tasks.

    Args:
        name: one of `names`.
        tasks: what each is expected to reach, see `of_task`; at least one.
        thresholds: those that `tasks` was made with.

    Raises:
        InvalidOptionError: for an unknown name, or without tasks.

    >>> overall("correct", [TaskFigures(1.0, (), 2.0, 0.69, 1.0), TaskFigures(0.0, (), 0.0, 0.0, 0.0)], ())
    0.5
    """
    known = names(thresholds)
    if name not in known:
        raise InvalidOptionError(f"There is no figure {name!r}; there are {', '.join(known)}.")
    if not tasks:
        raise InvalidOptionError("There is no task to make a figure of.")
    return _figure(name, known.index(name) - 1)(tasks)


def cannot_count(tasks: Sequence[TaskSamples]) -> list[str]:
    """Ids of tasks that have no sample because all of theirs were lost: faults ended them, or they lack a turn in the
    file. That says nothing about the policy, so these tasks are left out.
    """
    return [task.task_id for task in tasks if not task.samples and not task.unfinished and (task.faults or task.broken)]


def least_samples(tasks: Sequence[TaskSamples]) -> int:
    """The greatest k that every task with samples allows, at least 1."""
    return max(1, min((len(task.samples) for task in tasks if task.samples), default=1))


def measured(tasks: Sequence[TaskSamples]) -> list[str]:
    """The baselines that any correct turn has a speedup over; eager in any case."""
    found = _timed(tasks)
    return [name for name in BASELINES if name in found or name == "eager"]


def _timed(tasks: Sequence[TaskSamples]) -> set[str]:
    """The baselines that any correct turn has a speedup over."""
    return {
        name
        for task in tasks
        for sample in task.samples
        for turn in sample.turns
        for name in BASELINES
        if not math.isnan(turn.speedup(name))
    }


def figures(
    tasks: Sequence[TaskSamples],
    k: int = 1,
    *,
    baseline: str = "eager",
    select: str | int = "best",
    thresholds: Sequence[float] = THRESHOLDS,
    strict: bool = True,
    resamples: int = 1000,
    seed: int = 0,
    whole: Sequence[TaskSamples] | None = None,
) -> list[Figure]:
    """All figures over a set of tasks; the tasks of `cannot_count` are left out.

    Args:
        tasks: the fixed set, see `from_episodes`.
        k: samples a task.
        baseline: one of `BASELINES`.
        select: see `reached`.
        thresholds: the p of fast_p, at least 0; fast_0 is the share of correct ones, timed or not.
        strict: see `of_task`.
        resamples: of the bootstrap.
        seed: of the bootstrap.
        whole: the set that these tasks are a part of, in which the baseline has to have a time; None takes these.

    Raises:
        InvalidOptionError: without tasks that count, for a k beyond the samples of a task, a negative threshold, or a
            baseline that nothing correct has a time of; ``eager`` is taken all the same.
        UnknownNameError: for an unknown baseline or selection.
    """
    _check_measured(tasks if whole is None else whole, baseline)
    check_select(select)
    if not all(p >= 0 for p in thresholds):
        raise InvalidOptionError(f"Thresholds of fast_p are at least 0, got {list(thresholds)!r}.")
    lost = set(cannot_count(tasks))
    counted = [
        of_task(task, k, baseline=baseline, select=select, thresholds=thresholds, strict=strict)
        for task in tasks
        if task.task_id not in lost
    ]
    if not counted:
        raise InvalidOptionError(
            "There is no task that counts: the set is empty, or every episode ended in a fault or lacks a turn."
        )
    rows = []
    for place, name in enumerate(names(thresholds)):
        found: Interval = bootstrap(counted, _figure(name, place - 1), resamples=resamples, seed=seed)
        rows.append(Figure(name, "" if name == "correct" else baseline, k, select, len(counted), *found))
    return rows


def _check_measured(tasks: Sequence[TaskSamples], baseline: str) -> None:
    """Refuse a baseline over which nothing has a speedup, although something is correct."""
    if baseline not in BASELINES:
        raise unknown_name("baseline", baseline, BASELINES)
    correct = any(turn.correct for task in tasks for sample in task.samples for turn in sample.turns)
    if correct and baseline not in measured(tasks):
        found = _timed(tasks)
        there = (
            f"there are times of {', '.join(name for name in BASELINES if name in found)}" if found else "nor of others"
        )
        raise InvalidOptionError(f"Nothing correct has a time of the baseline {baseline!r}; {there}.")


def milestones(last: int, most: int = 8) -> list[int]:
    """Of the numbers from 1 to `last` those that a table has room for: all, or powers of 2 (or 4, …) and the last one.

    Args:
        last: the greatest number; below 1 there are none.
        most: how many there may be, at least 2.

    >>> milestones(4), milestones(20), milestones(640)
    ([1, 2, 3, 4], [1, 2, 4, 8, 16, 20], [1, 4, 16, 64, 256, 640])
    """
    found = list(range(1, last + 1))
    factor = 2
    while len(found) > most:
        powers = itertools.takewhile(lambda power: power < last, (factor**place for place in itertools.count()))
        found = [*powers, last]
        factor *= 2
    return found


def by_level(tasks: Sequence[TaskSamples], k: int = 1, **options: Any) -> dict[int, list[Figure]]:
    """`figures` of each level, in rising order; levels without a task that counts are left out.

    Raises:
        InvalidOptionError: as `figures` does; a baseline need only be measured on one of the levels.
        UnknownNameError: as `figures` does.
    """
    lost = set(cannot_count(tasks))
    levels = sorted({task.level for task in tasks if task.task_id not in lost})
    return {
        level: figures([task for task in tasks if task.level == level], k, whole=tasks, **options) for level in levels
    }


def by_turn(tasks: Sequence[TaskSamples], k: int = 1, **options: Any) -> dict[int, list[Figure]]:
    """`figures` of the best within the first 1, 2, … turns, up to the longest trajectory."""
    longest = max((len(sample.turns) for task in tasks for sample in task.samples), default=0)
    return {turn: figures(tasks, k, **{**options, "select": turn}) for turn in range(1, longest + 1)}


def statuses(tasks: Sequence[TaskSamples]) -> dict[str, int]:
    """How the turns of all samples ended, the commonest first; ``stop`` where the agent ended the episode."""
    found = Counter(turn.status or "stop" for task in tasks for sample in task.samples for turn in sample.turns)
    return dict(found.most_common())
