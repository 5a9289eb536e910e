"""Figures of samples: against hand-worked examples, and against every way to draw k samples."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Finding, Status
from kernelgym_env.reports.figures import (
    by_level,
    by_turn,
    cannot_count,
    figures,
    least_samples,
    measured,
    milestones,
    names,
    of_task,
    overall,
    statuses,
)
from kernelgym_env.reports.samples import Sample, TaskSamples, Turn, from_episodes, from_kernelbench, reached
from kernelgym_env.store import TurnRecord
from kernelgym_env.tasks.kernelbench.baselines import BaselineTime, read_baselines, write_baselines
from kernelgym_env.tasks.kernelbench.runs import Sample as KernelBenchSample
from kernelgym_env.tasks.kernelbench.runs import read_run, write_run

WRONG = Turn(status="wrong")


def right(speedup: float, compiled: float = math.nan) -> Turn:
    return Turn(True, {"eager": speedup, "compile": compiled}, "correct")


def task(*samples: Turn | tuple[Turn, ...], name: str = "a/b", level: int = 0, **counts: int) -> TaskSamples:
    turns = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    return TaskSamples(name, level, tuple(Sample(entry) for entry in turns), **counts)


def values(tasks: list[TaskSamples], k: int = 1, **options) -> dict[str, float]:
    return {figure.name: figure.value for figure in figures(tasks, k, resamples=20, **options)}


# --- one trajectory

LAYER_NORM = Sample((right(0.6), right(4.27), WRONG, WRONG, right(9.61)))
CONV_3D = Sample((right(1.06), WRONG, right(0.61), right(1.19), right(1.19), right(1.19), right(1.93), WRONG))


@pytest.mark.parametrize(
    ("sample", "select", "expected"),
    [
        (LAYER_NORM, "best", 9.61),
        (LAYER_NORM, "last", 9.61),
        (LAYER_NORM, 1, 0.6),
        (LAYER_NORM, 4, 4.27),
        (LAYER_NORM, 99, 9.61),
        (CONV_3D, "best", 1.93),
        (CONV_3D, 6, 1.19),
    ],
)
def test_what_kevins_trajectories_reached(sample, select, expected):
    assert reached(sample, select) == (True, expected)


def test_the_last_turn_counts_alone():
    correct, speedup = reached(CONV_3D, "last")
    assert not correct
    assert math.isnan(speedup)


def test_correct_and_not_timed():
    correct, speedup = reached(Sample((Turn(True, {}, "correct"),)))
    assert correct
    assert math.isnan(speedup)
    found = values([task(Turn(True, {}, "correct"))], thresholds=(0, 1))
    assert (found["correct"], found["fast_0"], found["fast_1"], found["mean_speedup"]) == (1, 1, 0, 0)
    assert math.isnan(found["geomean"])


def test_a_speedup_of_what_is_not_correct_does_not_count():
    cheat = Turn(False, {"eager": 18.0}, "integrity")
    assert values([task(cheat)], thresholds=(0, 1)) == pytest.approx(
        {"correct": 0, "fast_0": 0, "fast_1": 0, "mean_speedup": 0, "geomean": math.nan}, nan_ok=True
    )


@pytest.mark.parametrize("select", [0, -1, True])
def test_what_is_no_number_of_turns(select):
    with pytest.raises(InvalidOptionError, match=str(select)):
        reached(LAYER_NORM, select)


def test_unknown_names_say_what_is_allowed():
    with pytest.raises(UnknownNameError, match="best, last"):
        reached(LAYER_NORM, "first")
    with pytest.raises(UnknownNameError, match="compile, eager, graph"):
        reached(LAYER_NORM, "best", "egaer")


# --- a set of tasks

SET = [task(right(1.0), name="a"), task(right(1.2), name="b"), task(right(2.0), name="c"), task(WRONG, name="d")]


def test_fast_p_of_the_worked_example():
    found = values(SET, thresholds=(0, 1, 1.2, 2))
    assert [found[f"fast_{p}"] for p in ("0", "1", "1.2", "2")] == [0.75, 0.5, 0.25, 0.0]
    found = values(SET, thresholds=(0, 1, 1.2, 2), strict=False)
    assert [found[f"fast_{p}"] for p in ("0", "1", "1.2", "2")] == [0.75, 0.75, 0.5, 0.25]
    assert found["correct"] == 0.75


def test_the_geometric_mean_is_of_what_was_correct_and_the_mean_of_all():
    found = values([task(right(20.0), name="a"), task(right(1.3), name="b"), task(WRONG, name="c")])
    assert found["geomean"] == pytest.approx(5.099, abs=5e-4)
    assert found["mean_speedup"] == pytest.approx(21.3 / 3)


def test_kevins_best_and_average_of_samples():
    one = task(WRONG, WRONG, right(1.3), right(1.8))
    assert [values([one], k)["mean_speedup"] for k in (1, 2, 3, 4)] == pytest.approx([0.775, 4 / 3, 1.675, 1.8])
    sixteen = task(*[right(1.0)] * 3, *[WRONG] * 13)
    assert values([sixteen], 8)["correct"] == pytest.approx(0.9)


turns = st.one_of(
    st.just(WRONG),
    st.just(Turn(True, {}, "correct")),
    st.builds(right, st.sampled_from([0.5, 1.0, 1.2, 1.5, 2.0, 3.7]), st.sampled_from([0.5, 1.0, 2.0])),
)
tasks_of_samples = st.lists(
    st.lists(st.lists(turns, min_size=1, max_size=3).map(tuple), min_size=1, max_size=5), min_size=1, max_size=3
)


@given(tasks_of_samples, st.data(), st.sampled_from(["last", "best", 1, 2]), st.sampled_from(["eager", "compile"]))
def test_k_samples_are_what_every_way_to_draw_them_gives(drawn, data, select, baseline):
    tasks = [task(*samples, name=str(place)) for place, samples in enumerate(drawn)]
    nothing_correct = not any(turn.correct for entry in tasks for sample in entry.samples for turn in sample.turns)
    assume(nothing_correct or baseline in measured(tasks))
    k = data.draw(st.integers(1, least_samples(tasks)))
    thresholds, strict = (0, 1, 1.5), data.draw(st.booleans())
    found = values(tasks, k, select=select, baseline=baseline, thresholds=thresholds, strict=strict)
    correct, speed, logs, timed, fast = [], [], 0.0, 0.0, {p: [] for p in thresholds}
    for entry in tasks:
        ways = list(itertools.combinations([reached(sample, select, baseline) for sample in entry.samples], k))
        best = [max((s for _, s in way if not math.isnan(s)), default=math.nan) for way in ways]
        correct.append(np.mean([any(right for right, _ in way) for way in ways]))
        speed.append(np.mean(np.nan_to_num(best)))
        logs += sum(math.log(value) for value in best if not math.isnan(value)) / len(ways)
        timed += sum(not math.isnan(value) for value in best) / len(ways)
        for p in thresholds:
            over = [value > p if strict else value >= p for value in best]
            fast[p].append(correct[-1] if p == 0 else np.mean(over))
    assert found["correct"] == pytest.approx(np.mean(correct))
    assert found["mean_speedup"] == pytest.approx(np.mean(speed))
    for p in thresholds:
        assert found[f"fast_{p:g}"] == pytest.approx(np.mean(fast[p]))
    assert found["geomean"] == pytest.approx(math.exp(logs / timed) if timed else math.nan, nan_ok=True)


@given(tasks_of_samples)
def test_more_samples_and_more_turns_never_lose(drawn):
    tasks = [task(*samples, name=str(place)) for place, samples in enumerate(drawn)]
    for name in ("correct", "fast_1", "fast_2", "mean_speedup"):
        over_k = [values(tasks, k)[name] for k in range(1, least_samples(tasks) + 1)]
        over_turns = [next(f.value for f in found if f.name == name) for found in by_turn(tasks, resamples=5).values()]
        assert over_k == pytest.approx(sorted(over_k))
        assert over_turns == pytest.approx(sorted(over_turns))


def test_intervals_are_over_tasks_and_hold_the_figure():
    tasks = [task(right(1 + place / 10), WRONG, name=str(place)) for place in range(20)]
    for figure in figures(tasks, 1, resamples=500):
        assert figure.tasks == 20
        assert figure.low <= figure.value <= figure.high
    assert figures(tasks, 1, resamples=100) == figures(tasks, 1, resamples=100)


def test_a_task_without_samples_is_not_solved_and_one_lost_to_faults_is_left_out():
    unplayed, lost = task(name="u", unfinished=1), task(name="f", faults=2)
    tasks = [task(right(2.0), name="a"), unplayed, lost]
    assert cannot_count(tasks) == ["f"]
    assert values(tasks)["correct"] == 0.5
    assert figures(tasks, resamples=5)[0].tasks == 2
    with pytest.raises(InvalidOptionError, match="no task that counts"):
        figures([lost])


def test_a_task_of_which_every_episode_was_lost_is_left_out():
    assert cannot_count([task(name="b", broken=1)]) == ["b"]
    assert cannot_count([task(name="b", broken=1, faults=1)]) == ["b"]
    assert cannot_count([task(name="b", broken=1, unfinished=1), task(right(2.0), name="c", broken=1)]) == []


def test_k_beyond_the_samples_names_the_task():
    with pytest.raises(InvalidOptionError, match="a/b has 1 samples that count, so k must be from 1 to 1, got 2"):
        figures([task(right(1.0))], 2)


def test_thresholds_are_checked():
    for wrong in (-1.0, math.nan):
        with pytest.raises(InvalidOptionError, match="at least 0"):
            figures(SET, thresholds=(wrong,))


def test_by_level_statuses_and_baselines():
    tasks = [task(right(2.0, 1.5), name="a", level=1), task((WRONG, Turn()), name="b", level=2)]
    levels = by_level(tasks, resamples=5)
    assert {level: found[0].value for level, found in levels.items()} == {1: 1.0, 2: 0.0}
    assert statuses(tasks) == {"correct": 1, "wrong": 1, "stop": 1}
    assert measured(tasks) == ["eager", "compile"]
    assert measured([task(WRONG)]) == ["eager"]


def test_a_baseline_that_nothing_was_timed_over_is_refused():
    timed, untimed = task(right(2.0, 1.5), name="a", level=1), task(right(3.0), name="b", level=2)
    with pytest.raises(InvalidOptionError, match="time of the baseline 'compile'; there are times of eager"):
        figures([untimed], baseline="compile")
    with pytest.raises(InvalidOptionError, match="baseline 'graph'; nor of others"):
        figures([task(Turn(True, {}, "correct"))], baseline="graph")
    with pytest.raises(InvalidOptionError, match="'compile'"):
        by_turn([untimed], baseline="compile")
    assert values([task(WRONG)], baseline="compile")["mean_speedup"] == 0
    assert values([task(Turn(True, {}, "correct"))])["mean_speedup"] == 0
    # of the parts of a set, one of which has times, none is refused
    assert values([timed, untimed], baseline="compile")["mean_speedup"] == 0.75
    levels = by_level([timed, untimed], resamples=5, baseline="compile")
    assert [found[-2].value for found in levels.values()] == [1.5, 0.0]


def test_a_set_of_one_task_has_no_interval():
    assert all(math.isnan(figure.low) and math.isnan(figure.high) for figure in figures([task(right(2.0))]))


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (0, []),
        (1, [1]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (9, [1, 2, 4, 8, 9]),
        (16, [1, 2, 4, 8, 16]),
        (128, [1, 2, 4, 8, 16, 32, 64, 128]),
        (129, [1, 4, 16, 64, 129]),
        (1000, [1, 4, 16, 64, 256, 1000]),
    ],
)
def test_milestones(last, told):
    assert milestones(last) == told


@given(st.integers(1, 10**6), st.integers(2, 12))
def test_milestones_begin_and_end_and_have_room(last, most):
    found = milestones(last, most)
    assert found[0] == 1
    assert found[-1] == last
    assert len(found) <= most
    assert found == sorted(set(found))


def test_the_parts_of_a_figure():
    one = of_task(task(right(2.0), WRONG), 2)
    assert (one.correct, one.fast, one.speedup, one.timed) == (1.0, (1.0, 1.0, 1.0, 0.0), 2.0, 1.0)
    with pytest.raises(InvalidOptionError, match="no figure 'fast_3'"):
        overall("fast_3", [one])
    with pytest.raises(InvalidOptionError, match="no task"):
        overall("correct", [])
    assert names((0.8,)) == ["correct", "fast_0.8", "mean_speedup", "geomean"]


# --- from stored trajectories


def record(turn: int, evaluation: Evaluation | None, episode: str = "e", task_id: str = "a/b", **values) -> TurnRecord:
    data = {} if evaluation is None else evaluation.to_dict()
    return TurnRecord("run", episode, task_id, turn, "p", "x", data, **values)


def test_samples_of_stored_trajectories():
    found = Evaluation("a/b", Status.CORRECT, speedup=2.0, speedup_compile=1.5, findings=(Finding("C1", "soft", "a"),))
    fault = Evaluation("a/b", Status.FAULT, fault="a lost device")
    episodes = [
        [record(1, Evaluation("a/b", Status.WRONG)), record(2, found, terminated=True)],
        [record(1, found, "f"), record(2, fault, "f", truncated=True, valid=False)],
        [record(1, found, "g")],
        [record(1, None, "h", terminated=True)],
        [record(1, found, "i"), record(3, found, "i", terminated=True)],
        [record(2, fault, "j", truncated=True, valid=False)],
    ]
    (only,) = from_episodes(episodes, {"a/b": 2})
    assert (only.level, len(only.samples), only.faults, only.unfinished, only.broken) == (2, 2, 1, 1, 2)
    assert reached(only.samples[0], "best", "compile") == (True, 1.5)
    assert only.samples[0].turns[1].findings == ("C1",)
    assert statuses([only]) == {"wrong": 1, "correct": 1, "stop": 1}
    with pytest.raises(InvalidOptionError, match="'a/b', which is not in the set"):
        from_episodes(episodes, {"c/d": 1})
    assert [entry.task_id for entry in from_episodes(episodes, {"c/d": 1, "a/b": 2})] == ["c/d", "a/b"]


def test_the_trials_of_a_search_are_samples_at_any_depth():
    found = Evaluation("a/b", Status.CORRECT, speedup=2.0)
    (only,) = from_episodes([[record(3, found, "a/b@7", terminated=True, parent="a/b@3")]])
    assert (len(only.samples), only.broken) == (1, 0)


# --- KernelBench's own definitions, on a folder of its form


def kernelbench_fast_p(correct, baseline, actual, n, p):
    """As KernelBench's `score.py` defines it."""
    speedup = baseline[correct] / actual[correct]
    return np.sum(speedup > p) / n


def test_figures_of_a_folder_of_kernelbench(tmp_path):
    times = {1: 2.0, 2: 1.0, 3: 1.0, 4: None, 5: 0.5}
    result = {"compiled": True, "metadata": {}, "runtime_stats": {}}
    samples = [
        KernelBenchSample(1, number, 0, "x = 1", "", {**result, "correctness": time is not None, "runtime": time or -1})
        for number, time in times.items()
    ]
    write_run(tmp_path / "run", samples)
    baselines = {f"KernelBench/L1-00{number}": BaselineTime(1.0) for number in times}
    write_baselines(tmp_path / "times.json", baselines, {task_id: f"{task_id[-1]}_Any" for task_id in baselines})
    tasks = from_kernelbench(
        read_run(tmp_path / "run", level=1), {"eager": read_baselines(tmp_path / "times.json")}, list(baselines)
    )
    correct = np.array([time is not None for time in times.values()])
    actual = np.array([time or -1.0 for time in times.values()])
    for p in (0.0, 0.5, 0.8, 1.0, 1.5, 2.0):
        wanted = kernelbench_fast_p(correct, np.ones(5), actual, 5, p)
        assert values(tasks, thresholds=(p,))[f"fast_{p:g}"] == pytest.approx(wanted)
    assert values(tasks)["geomean"] == pytest.approx(np.prod(1 / actual[correct]) ** (1 / 4))
    assert values(tasks)["correct"] == 0.8
    assert json.loads((tmp_path / "run" / "eval_results.json").read_text())


def test_pass_at_k_of_a_folder_of_kernelbench():
    result = {"compiled": True, "metadata": {}, "runtime": 1.0, "runtime_stats": {}}
    samples = [KernelBenchSample(1, 1, n, "x", "", {**result, "correctness": n < 3}) for n in range(10)]
    tasks = from_kernelbench(samples, {"eager": {}})
    n, c = 10, 3
    for k in (1, 5, 10):
        wanted = 1.0 if n - c < k else 1 - np.prod(1 - k / np.arange(n - c + 1, n + 1))
        assert values(tasks, k)["correct"] == pytest.approx(wanted)
    with pytest.raises(InvalidOptionError, match="not in the set"):
        from_kernelbench(samples, {"eager": {}}, ["KernelBench/L1-002"])
    with pytest.raises(UnknownNameError, match="baseline"):
        from_kernelbench(samples, {"cudnn": {}})
    with pytest.raises(InvalidOptionError, match=r"times of a baseline, e.g. .*read_baselines"):
        from_kernelbench(samples, {})
