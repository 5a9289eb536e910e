"""Two runs side by side, or a run beside published figures.

- `Difference`, `compare_runs` -- each figure of two runs on the tasks that both have, with the difference's interval.
- `Beside`, `compare_published` -- each published figure that a run has a counterpart of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.metrics import Interval, bootstrap
from kernelgym_env.reports.figures import (
    THRESHOLDS,
    TaskFigures,
    cannot_count,
    figures,
    least_samples,
    measured,
    names,
    of_task,
    overall,
)
from kernelgym_env.reports.published import PublishedFigure, System
from kernelgym_env.reports.samples import BASELINES, TaskSamples
from kernelgym_env.tasks.kernelbench.ids import parse_id

__all__ = ["Beside", "Difference", "common_tasks", "compare_published", "compare_runs"]


@dataclass(frozen=True)
class Difference:
    """One figure of two runs.

    Attributes:
        figure: its name.
        baseline: what speedups are over, ``""`` for ``correct``.
        first: the first run's.
        second: the second run's.
        difference: second - first; for ``geomean`` second / first.
        low: lower end of its 95% interval, NaN where there is none.
        high: upper end.
    """

    figure: str
    baseline: str
    first: float
    second: float
    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``better`` or ``worse`` (the second one) where the interval excludes no difference, else ``unresolved``."""
        none = 1.0 if self.figure == "geomean" else 0.0
        return "better" if self.low > none else "worse" if self.high < none else "unresolved"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "verdict": self.verdict}


def common_tasks(first: Sequence[TaskSamples], second: Sequence[TaskSamples]) -> list[tuple[TaskSamples, TaskSamples]]:
    """The tasks of both runs in pairs, without those that cannot count in one of them.

    Raises:
        InvalidOptionError: if there is none.
    """
    other = {task.task_id: task for task in second}
    lost = {*cannot_count(first), *cannot_count(second)}
    pairs = [(task, other[task.task_id]) for task in first if task.task_id in other and task.task_id not in lost]
    if not pairs:
        raise InvalidOptionError("The two runs have no task in common that counts in both.")
    return pairs


def compare_runs(
    first: Sequence[TaskSamples],
    second: Sequence[TaskSamples],
    *,
    k: int | None = None,
    baseline: str = "eager",
    select: str | int = "best",
    thresholds: Sequence[float] = THRESHOLDS,
    resamples: int = 1000,
    seed: int = 0,
) -> list[Difference]:
    """Each figure of two runs, over the tasks that both have.

    The interval is a bootstrap over tasks, which are drawn in pairs: what makes a task hard cancels out.

    Args:
        first: samples of one run.
        second: samples of the other.
        k: samples a task; None takes 1, the mean over samples.
        baseline: see `kernelgym_env.reports.samples.BASELINES`.
        select: see `kernelgym_env.reports.samples.reached`.
        thresholds: the p of fast_p.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        InvalidOptionError: without a common task, for a k beyond the samples of a task, or a baseline that one of the
            runs did not measure.
        UnknownNameError: for an unknown baseline or selection.
    """
    if baseline not in BASELINES:
        raise unknown_name("baseline", baseline, BASELINES)
    for place, tasks in (("first", first), ("second", second)):
        if baseline not in measured(tasks):
            raise InvalidOptionError(f"The {place} run has no time of the baseline {baseline!r}.")
    pairs = [
        tuple(
            of_task(task, 1 if k is None else k, baseline=baseline, select=select, thresholds=thresholds)
            for task in pair
        )
        for pair in common_tasks(first, second)
    ]
    rows = []
    for name in names(thresholds):

        def both(drawn: Sequence[tuple[TaskFigures, ...]], name: str = name) -> tuple[float, float]:
            one, two = (overall(name, [pair[side] for pair in drawn], thresholds) for side in (0, 1))
            return one, two

        def difference(drawn: Sequence[tuple[TaskFigures, ...]], name: str = name) -> float:
            one, two = both(drawn, name)
            return (two / one if one else math.nan) if name == "geomean" else two - one

        found: Interval = bootstrap(pairs, difference, resamples=resamples, seed=seed)
        rows.append(Difference(name, "" if name == "correct" else baseline, *both(pairs), *found))
    return rows


@dataclass(frozen=True)
class Beside:
    """A published figure and the run's counterpart.

    Attributes:
        system: short name of the publication.
        model: whose figure it is.
        level: level of KernelBench, None for all.
        figure: its name.
        baseline: what speedups are over.
        k: samples a task.
        select: which turns of a sample count in the run: the publication's rule, ``best`` where it states none; the
            number of turns that the published figure is over, where that is known and the best of them counts.
        tasks: number of the run's tasks that its figure is over.
        published: the published figure.
        run: the run's, NaN where it has none.
        low: lower end of the run's 95% interval.
        high: upper end.
    """

    system: str
    model: str
    level: int | None
    figure: str
    baseline: str
    k: int
    select: str | int
    tasks: int
    published: float
    run: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare_published(
    tasks: Sequence[TaskSamples], system: System, *, resamples: int = 1000, seed: int = 0
) -> list[Beside]:
    """Each published figure beside the run's, by the publication's own rule of selection and number of samples, over as
    many turns: a figure over single turns is beside that of the run's first turns.

    Only the run's tasks of KernelBench count, as the publications are about these. A figure is left out where the run
    has no counterpart: no task of that level, fewer samples a task, a baseline that was not measured, or a kind of
    figure that reports do not have.

    Args:
        tasks: the run's samples.
        system: the publication.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    lost = set(cannot_count(tasks))
    counted = [task for task in tasks if task.task_id not in lost and parse_id(task.task_id)]
    known: dict[tuple[int | None, int, str, str | int], dict[str, tuple[float, float, float]]] = {}
    rows = []
    for row in system.rows:
        chosen = [task for task in counted if row.level is None or task.level == row.level]
        p = row.figure.removeprefix("fast_")
        thresholds = (*THRESHOLDS, float(p)) if p != row.figure and float(p) not in THRESHOLDS else THRESHOLDS
        if not chosen or row.k > least_samples(chosen) or row.figure not in names(thresholds):
            continue
        if row.baseline and row.baseline not in measured(chosen):
            continue
        select = _select(system, row)
        key = (row.level, row.k, f"{row.baseline} {p}", select)
        if key not in known:
            found = figures(
                chosen,
                row.k,
                baseline=row.baseline or "eager",
                select=select,
                thresholds=thresholds,
                resamples=resamples,
                seed=seed,
            )
            known[key] = {figure.name: (figure.value, figure.low, figure.high) for figure in found}
        figure = known[key][row.figure]
        rows.append(
            Beside(
                system.name,
                row.model,
                row.level,
                row.figure,
                row.baseline,
                row.k,
                select,
                len(chosen),
                row.value,
                *figure,
            )
        )
    return rows


def _select(system: System, row: PublishedFigure) -> str | int:
    """Which turns of the run count beside a published figure."""
    if row.turns == 1 or (row.turns is not None and system.select != "last"):
        return row.turns
    return system.select or "best"
