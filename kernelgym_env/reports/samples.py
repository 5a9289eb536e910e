"""What the samples of a run reached, task by task: what every figure is made from.

- `Turn`, `Sample`, `TaskSamples` -- one turn, one trajectory, all trajectories on a task.
- `from_episodes` -- from stored trajectories.
- `from_kernelbench` -- from a ``runs/`` folder of KernelBench, with baseline times.
- `reached` -- what a sample counts with: its last turn, its best, or its best within k turns.

A trajectory that a fault ended says nothing about the policy and is no sample; it is counted apart, and so is one of
which a turn is missing in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.store import TurnRecord, is_whole
from kernelgym_env.tasks.kernelbench.baselines import BaselineTime
from kernelgym_env.tasks.kernelbench.runs import Sample as KernelBenchSample

__all__ = [
    "BASELINES",
    "Sample",
    "TaskSamples",
    "Turn",
    "check_select",
    "from_episodes",
    "from_kernelbench",
    "reached",
]

BASELINES = ("eager", "compile", "graph")
"""What a speedup is over: eager PyTorch, ``torch.compile``, the reference as a CUDA graph."""

_SELECT = ("last", "best")


@dataclass(frozen=True)
class Turn:
    """What one turn reached.

    Attributes:
        correct: whether the submission was credited.
        speedups: by baseline; NaN where it was not correct or not measured.
        status: how it ended, ``""`` where nothing was judged.
        findings: ids of what was noticed.
    """

    correct: bool = False
    speedups: Mapping[str, float] = field(default_factory=dict)
    status: str = ""
    findings: tuple[str, ...] = ()

    def speedup(self, baseline: str) -> float:
        """Baseline's time / submission's, NaN where there is none."""
        return self.speedups.get(baseline, math.nan) if self.correct else math.nan


@dataclass(frozen=True)
class Sample:
    """One trajectory: its turns, at least one, in the order in which they were played."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class TaskSamples:
    """All trajectories on a task.

    Attributes:
        task_id: the task.
        level: its level, 0 for none.
        samples: those that count.
        faults: number of those that a fault ended.
        unfinished: number of those that have not come to their end; they are no samples either.
        broken: number of those that lack a turn in the file, see `kernelgym_env.store.is_whole`; nor are they.
    """

    task_id: str
    level: int = 0
    samples: tuple[Sample, ...] = ()
    faults: int = 0
    unfinished: int = 0
    broken: int = 0


def check_select(select: str | int) -> str | int:
    """Return `select`, or raise for what is neither ``last``, ``best`` nor a number of turns of at least 1.

    Raises:
        UnknownNameError: for another text.
        InvalidOptionError: for another number.
    """
    if isinstance(select, str) and select not in _SELECT:
        raise unknown_name("selection of turns", select, (*_SELECT, "a number of turns"))
    if not isinstance(select, str) and (isinstance(select, bool) or select < 1):
        raise InvalidOptionError(f"select must be 'last', 'best' or a number of turns of at least 1, got {select!r}.")
    return select


def reached(sample: Sample, select: str | int = "best", baseline: str = "eager") -> tuple[bool, float]:
    """Whether a sample is correct, and its speedup.

    Args:
        sample: the trajectory.
        select: ``last`` takes the last turn alone; ``best`` the fastest correct turn; a number k the fastest correct
            one of the first k turns.
        baseline: one of `BASELINES`.

    Returns:
        (correct, speedup); the speedup is NaN where nothing was correct, or no correct turn was timed.

    Raises:
        UnknownNameError: for an unknown selection or baseline.
        InvalidOptionError: for a number of turns below 1.

    >>> slow, fast = Turn(True, {"eager": 0.6}), Turn(True, {"eager": 4.27})
    >>> sample = Sample((slow, fast, Turn()))
    >>> reached(sample, "last"), reached(sample, "best"), reached(sample, 1)
    ((False, nan), (True, 4.27), (True, 0.6))
    """
    check_select(select)
    if baseline not in BASELINES:
        raise unknown_name("baseline", baseline, BASELINES)
    turns = sample.turns[-1:] if select == "last" else sample.turns if select == "best" else sample.turns[: int(select)]
    speeds = [speed for turn in turns if not math.isnan(speed := turn.speedup(baseline))]
    return any(turn.correct for turn in turns), max(speeds, default=math.nan)


def from_episodes(
    episodes: Iterable[Sequence[TurnRecord]], tasks: Mapping[str, int] | None = None
) -> list[TaskSamples]:
    """The samples of stored trajectories, in the order of the tasks.

    Args:
        episodes: as `Store.episodes` gives them.
        tasks: the fixed set: levels by task id. A task of it without an episode has no samples; episodes on other
            tasks are refused. None takes the tasks that come up, with level 0.

    Raises:
        InvalidOptionError: for an episode on a task outside the set, or a record that is no evaluation.
    """
    found: dict[str, list[Sequence[TurnRecord]]] = {task_id: [] for task_id in tasks or ()}
    for episode in episodes:
        task_id = episode[0].task_id
        if tasks is not None and task_id not in tasks:
            raise InvalidOptionError(f"There is an episode on {task_id!r}, which is not in the set of tasks.")
        found.setdefault(task_id, []).append(episode)
    return [_task_samples(task_id, (tasks or {}).get(task_id, 0), played) for task_id, played in found.items()]


def _task_samples(task_id: str, level: int, episodes: Sequence[Sequence[TurnRecord]]) -> TaskSamples:
    whole = [episode for episode in episodes if is_whole(episode)]
    faults = sum(not episode[-1].valid or episode[-1].truncated for episode in whole)
    ended = [episode for episode in whole if episode[-1].terminated and episode[-1].valid]
    samples = tuple(Sample(tuple(_turn(record) for record in episode)) for episode in ended)
    return TaskSamples(
        task_id, level, samples, faults, len(whole) - faults - len(ended), broken=len(episodes) - len(whole)
    )


def _turn(record: TurnRecord) -> Turn:
    if not record.evaluation or not record.evaluation.get("status"):
        return Turn()  # the agent's stop
    evaluation = Evaluation.from_dict(record.evaluation)
    speedups = (evaluation.speedup, evaluation.speedup_compile, evaluation.speedup_graph)
    return Turn(
        evaluation.credited,
        dict(zip(BASELINES, speedups, strict=True)),
        evaluation.status.value,
        tuple(finding.id for finding in evaluation.findings if finding.severity != "note"),
    )


def from_kernelbench(
    samples: Iterable[KernelBenchSample],
    baselines: Mapping[str, Mapping[str, BaselineTime | None]],
    tasks: Iterable[str] | None = None,
) -> list[TaskSamples]:
    """The samples of a ``runs/`` folder, each a trajectory of one turn.

    As in KernelBench a speedup is the baseline's mean / the kernel's ``runtime``, and a sample without a result is not
    correct.

    Args:
        samples: as `kernelgym_env.tasks.kernelbench.runs.read_run` gives them.
        baselines: times by task id (`read_baselines`) by the name of the baseline; at least one.
        tasks: the fixed set of task ids; None takes those of the folder. KernelBench takes the whole level.

    Raises:
        UnknownNameError: for an unknown baseline.
        InvalidOptionError: for a sample of a task outside the set, or without baselines.
    """
    if not baselines:
        raise InvalidOptionError(
            "Speedups need the times of a baseline, e.g. {'eager': read_baselines('baseline_time_torch.json')}."
        )
    for name in baselines:
        if name not in BASELINES:
            raise unknown_name("baseline", name, BASELINES)
    found: dict[str, list[Sample]] = {task_id: [] for task_id in tasks or ()}
    for sample in samples:
        if tasks is not None and sample.task_id not in found:
            raise InvalidOptionError(f"There is a sample of {sample.task_id!r}, which is not in the set of tasks.")
        found.setdefault(sample.task_id, []).append(Sample((_kernelbench_turn(sample, baselines),)))
    return [TaskSamples(task_id, int(task_id.split("/L")[1][0]), tuple(rows)) for task_id, rows in found.items()]


def _kernelbench_turn(sample: KernelBenchSample, baselines: Mapping[str, Mapping[str, BaselineTime | None]]) -> Turn:
    result = sample.result or {}
    correct, runtime = bool(result.get("correctness")), float(result.get("runtime") or -1.0)
    speedups = {
        name: time.mean / runtime
        for name, times in baselines.items()
        if runtime > 0 and (time := times.get(sample.task_id)) is not None
    }
    return Turn(correct, speedups, Status.CORRECT.value if correct else Status.WRONG.value if result else "")
