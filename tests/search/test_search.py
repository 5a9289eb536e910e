"""Searches: what they ask for, what they may spend, and that they go on after a break."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env import pools
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.keeping import locked
from kernelgym_env.policies.base import Action
from kernelgym_env.policies.choosing import SamplerPolicy
from kernelgym_env.policies.simulated import SimulatedPolicy
from kernelgym_env.pools.fake import FakePool
from kernelgym_env.pools.simulated import SimulatedPool
from kernelgym_env.pools.simulated_tasks import SimulatedConfig, SimulatedTask
from kernelgym_env.search import (
    METHODS,
    Budget,
    SearchResult,
    Trial,
    beam,
    best_of_n,
    grid,
    islands,
    refine,
    run_method,
    stts,
)
from kernelgym_env.store import Store

TASK = "KernelGym/RowSum"
SIZES = {
    "best_of_n": ({"n": 24}, 24),
    "refine": ({"trajectories": 4, "turns": 6}, 24),
    "beam": ({"width": 4, "turns": 3, "keep": 2, "rounds": 2}, 24),
    "stts": ({"turns": 4, "keep": 2, "iterations": 5, "chains": 2}, 24),
    "islands": ({"count": 3, "generations": 8, "migrate": 2}, 24),
}


class Watching(SamplerPolicy):
    """Keeps what it saw."""

    def __init__(self):
        self.seen, self.judged = [], 0

    def act(self, observations):
        self.seen += observations
        return super().act(observations)

    def observe(self, evaluations):
        self.judged += len(evaluations)


def fresh_pool(seed=0, **options):
    pools.register("searching", lambda: SimulatedPool(SimulatedConfig(**options), seed))
    return "searching"


def told(result):
    return [
        (trial.id, trial.parent, trial.depth, trial.action, trial.status, f"{trial.speedup}") for trial in result.trials
    ]


@pytest.mark.parametrize("method", METHODS)
def test_each_asks_for_what_it_says(method):
    options, count = SIZES[method]
    policy = Watching()
    result = run_method(method, TASK, policy, pool=fresh_pool(), **options)
    assert (result.method, result.task_id, len(result.trials), result.complete) == (method, TASK, count, True)
    assert policy.judged == count == len({seen["seed"] for seen in policy.seen})
    known = {trial.id: trial for trial in result.trials}
    assert len(known) == count
    for trial in result.trials:
        assert trial.depth == (
            known[trial.parent].depth + 1 if trial.parent in known and method != "stts" else trial.depth
        )
        assert not trial.parent or trial.parent in known
    assert result.curve == sorted(result.curve) and result.curve[-1] == result.best.speedup
    assert json.loads(json.dumps(result.to_dict()))["evaluations"] == count


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("spent", [1, 7, 23])
def test_a_search_goes_on_where_its_budget_ended(method, spent, tmp_path):
    options, count = SIZES[method]
    whole = run_method(method, TASK, SamplerPolicy(), pool=fresh_pool(), seed=3, **options)
    common = {"folder": tmp_path, "seed": 3, **options}
    part = run_method(method, TASK, SamplerPolicy(), pool=fresh_pool(), budget=Budget(evaluations=spent), **common)
    assert len(part.trials) == spent and not part.complete
    assert told(part) == told(whole)[:spent]
    policy = Watching()
    again = run_method(method, TASK, policy, pool="searching", **common)
    assert told(again) == told(whole) and again.complete
    assert len(policy.seen) == count - spent  # nothing is asked for twice
    assert len(list(Store(tmp_path / "turns.jsonl").records())) == count


def test_at_once_changes_nothing_but_the_order_of_asking():
    one = beam(TASK, SamplerPolicy(), pool=fresh_pool(), at_once=1, **SIZES["beam"][0])
    all_of_them = beam(TASK, SamplerPolicy(), pool=fresh_pool(), at_once=16, **SIZES["beam"][0])
    assert told(one) == told(all_of_them)


def test_parents_are_in_the_store(tmp_path):
    result = refine(TASK, SamplerPolicy(), 2, 3, pool=fresh_pool(), folder=tmp_path)
    records = {record.episode_id: record for record in Store(tmp_path / "turns.jsonl").records()}
    for trial in result.trials:
        assert records[trial.id].parent == trial.parent
        assert records[trial.id].turn == trial.depth
        assert [one.id for one in result.path(trial)] == sorted(one.id for one in result.path(trial))
    assert Counter(record.parent == "" for record in records.values()) == {True: 2, False: 4}


def test_a_beam_copies_the_best():
    policy = Watching()
    result = beam(TASK, policy, 4, 1, 2, 2, pool=fresh_pool())
    first = result.trials[:4]
    best = sorted(first, key=lambda trial: -trial.speed)[:2]
    assert [trial.parent for trial in result.trials[4:]] == [best[0].id] * 2 + [best[1].id] * 2
    assert all(len(seen["history"]) == 1 for seen in policy.seen[4:])


def test_stts_shows_the_best_turns_the_slowest_first():
    policy = Watching()
    result = stts(TASK, policy, turns=3, keep=2, iterations=3, pool=fresh_pool())
    assert [len(seen["history"]) for seen in policy.seen] == [0, 1, 2, 2, 2]
    by_action = {trial.action: trial.score for trial in result.trials}
    shown = [by_action[turn["action"]] for turn in policy.seen[-1]["history"]]
    assert shown == sorted(trial.score for trial in result.trials[:4])[-2:]


def test_the_defaults_of_stts_are_the_published_14_turns():
    assert len(stts(TASK, SamplerPolicy(), pool=fresh_pool()).trials) == 14


def test_islands_show_kernels_of_different_speed():
    policy = Watching()
    islands(TASK, policy, count=1, generations=30, pool=fresh_pool())
    shown = [[turn["feedback"] for turn in seen["history"]] for seen in policy.seen]
    assert max(len(turns) for turns in shown) == 2
    assert all("correct" in feedback for turns in shown for feedback in turns)
    without = Watching()
    islands(TASK, without, count=2, generations=3, shown=0, pool=fresh_pool())
    assert all(not seen["history"] for seen in without.seen)


def test_a_grid_has_equal_budgets(tmp_path):
    found = grid(TASK, SamplerPolicy(), ((2, 4), (4, 2), (8, 1)), pool=fresh_pool(), folder=tmp_path)
    assert {name: len(result.trials) for name, result in found.items()} == {"2x4": 8, "4x2": 8, "8x1": 8}
    assert max(trial.depth for trial in found["2x4"].trials) == 4
    assert (tmp_path / "8x1" / "search.json").exists()
    with pytest.raises(InvalidOptionError, match="same number"):
        grid(TASK, SamplerPolicy(), ((2, 4), (3, 2)))


def test_seconds_are_a_budget():
    pool = fresh_pool(latency_s=0.05)
    start = time.monotonic()
    result = refine(TASK, SamplerPolicy(), 1, 1000, pool=pool, budget=Budget(seconds=0.4))
    assert not result.complete and 1 <= len(result.trials) <= 10
    assert time.monotonic() - start < 10


def test_faults_are_not_an_end_and_are_asked_for_again(tmp_path):
    result = refine(TASK, SamplerPolicy(), 4, 6, pool=fresh_pool(fault=0.3), folder=tmp_path)
    assert len(result.trials) == 24
    lost = [trial for trial in result.trials if not trial.valid]
    assert lost and all(trial.speed == 0 for trial in lost)
    again = refine(TASK, SamplerPolicy(), 4, 6, pool=fresh_pool(seed=1, fault=0.0), folder=tmp_path)
    assert len(again.trials) == 24 and all(trial.valid for trial in again.trials)


class Telling(SamplerPolicy):
    """Its kernels have a speed that follows from the seed, and say how much was shown."""

    def act(self, observations):
        return [
            Action(f"# fake: speedup={1 + seen['seed'] % 97}\nclass ModelNew: ...  # {len(seen['history'])}")
            for seen in observations
        ]


class FailsAt:
    """A pool that judges another source at one of its evaluations; by default its third one is a fault."""

    def __init__(self, number=3, source="# fake: status=fault\nclass ModelNew: ..."):
        self.pool, self.count, self.number, self.source = FakePool(), 0, number, source

    def __getattr__(self, name):
        return getattr(self.pool, name)

    def submit(self, submission, priority=0):
        self.count += 1
        if self.count == self.number:
            submission = dataclasses.replace(submission, source=self.source)
        return self.pool.submit(submission, priority)


@pytest.mark.parametrize("seed", range(6))
def test_what_follows_a_fault_that_is_made_good_is_what_would_have_followed(seed, tmp_path):
    pools.register("searching", FailsAt)
    options = {"width": 4, "turns": 1, "keep": 2, "rounds": 3, "at_once": 4, "seed": seed}
    part = beam(TASK, Telling(), pool="searching", folder=tmp_path, **options)
    assert [trial.valid for trial in part.trials].count(False) == 1
    again = beam(TASK, Telling(), pool="searching", folder=tmp_path, **options)
    whole = beam(TASK, Telling(), pool="fake", **options)
    assert told(again) == told(whole)
    stored = list(Store(tmp_path / "turns.jsonl").episodes())
    assert [len(turns) for turns in stored] == [1] * 12
    assert {turns[0].episode_id: turns[0].parent for turns in stored} == {one.id: one.parent for one in whole.trials}


@pytest.mark.parametrize("lost", [0, 5])
def test_what_follows_a_line_that_was_lost_is_what_the_new_answer_leads_to(lost, tmp_path):
    options = {"width": 4, "turns": 1, "keep": 2, "rounds": 3, "at_once": 4}
    pools.register("searching", FakePool)
    beam(TASK, Telling(), pool="searching", folder=tmp_path, **options)
    lines = (tmp_path / "turns.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "turns.jsonl").write_bytes(b"".join([*lines[:lost], *lines[lost + 1 :]]))
    # the answer that was lost comes out otherwise now
    pools.register("searching", lambda: FailsAt(1, "# fake: speedup=99\nclass ModelNew: ..."))
    again = beam(TASK, Telling(), pool="searching", folder=tmp_path, **options)
    known = {trial.id: trial for trial in again.trials}
    assert again.trials[lost].speedup == 99
    for stored in Store(tmp_path / "turns.jsonl").episodes():
        trial = known[stored[-1].episode_id]
        assert stored[-1].parent == trial.parent
        if trial.parent:
            assert known[trial.parent].action in stored[-1].prompt[-2]["content"]


def test_one_process_at_a_time_and_a_folder_that_can_be_written(tmp_path):
    best_of_n(TASK, SamplerPolicy(), 2, pool=fresh_pool(), folder=tmp_path)
    with locked(tmp_path), pytest.raises(InvalidOptionError, match="Another process"):
        best_of_n(TASK, SamplerPolicy(), 2, pool=fresh_pool(), folder=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOptionError, match="cannot be made"):
        best_of_n(TASK, SamplerPolicy(), 2, pool=fresh_pool(), folder=tmp_path / "file" / "below")
    (tmp_path / "search.json").write_text("[1]")
    with pytest.raises(InvalidOptionError, match="can be read"):
        best_of_n(TASK, SamplerPolicy(), 2, pool=fresh_pool(), folder=tmp_path)


def test_another_search_in_the_folder_is_refused(tmp_path):
    best_of_n(TASK, SamplerPolicy(), 2, pool=fresh_pool(), folder=tmp_path)
    with pytest.raises(InvalidOptionError, match="settings .*'n': 2.*, not .*'n': 3"):
        best_of_n(TASK, SamplerPolicy(), 3, pool=fresh_pool(), folder=tmp_path)
    with pytest.raises(InvalidOptionError, match="method 'best_of_n', not 'beam'"):
        beam(TASK, SamplerPolicy(), pool=fresh_pool(), folder=tmp_path)
    (tmp_path / "search.json").unlink()
    with pytest.raises(InvalidOptionError, match="and no search"):
        best_of_n(TASK, SamplerPolicy(), 2, pool=fresh_pool(), folder=tmp_path)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: best_of_n(TASK, SamplerPolicy(), 0), "n must be a whole number"),
        (lambda: refine(TASK, SamplerPolicy(), 1, True), "turns must be"),
        (lambda: beam(TASK, SamplerPolicy(), 6, 1, 4), "keep must divide width"),
        (lambda: stts(TASK, SamplerPolicy(), 4, 4), "keep must be below turns"),
        (
            lambda: islands(TASK, SamplerPolicy(), temperature=0.0),
            "temperature must be a number from 1e-6 to 1e6, got 0.0",
        ),
        *[
            (lambda value=value: islands(TASK, SamplerPolicy(), temperature=value), "temperature must be a number from")
            for value in (1e-320, math.nan, math.inf, "1", True, -1)
        ],
        *[
            (lambda name=name, value=value: islands(TASK, SamplerPolicy(), **{name: value}), f"{name} must be a whole")
            for name in ("shown", "migrate")
            for value in (1.5, True, "1", -1)
        ],
        (lambda: refine(TASK, SamplerPolicy(), 1, 1001), "1000 turns"),
        (lambda: refine(TASK, SamplerPolicy(), budget=3), "must be a Budget"),
        *[
            (lambda value=value: refine(TASK, SamplerPolicy(), at_once=value), "at_once must be a whole number")
            for value in (0, 1.5, "2", True)
        ],
        *[
            (lambda value=value: grid(TASK, SamplerPolicy(), value), r"pairs \(trajectories, turns\)")
            for value in ((4, 8), [(2, 4, 1)], [("2", 4)], [], 3)
        ],
        (lambda: Budget(evaluations=0), "evaluations must be"),
        *[
            (lambda value=value: Budget(seconds=value), "seconds must be a number above 0")
            for value in (0, -1.0, math.nan, "3", True)
        ],
    ],
)
def test_values_that_do_not_fit(call, said):
    with pytest.raises(InvalidOptionError, match=said):
        call()


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="Did you mean 'beam'"):
        run_method("beem", TASK, SamplerPolicy())
    with pytest.raises(UnknownNameError, match="option"):
        refine(TASK, SamplerPolicy(), pol="fake")


def test_a_policy_that_gives_too_few_actions():
    class Short(SamplerPolicy):
        def act(self, observations):
            return [Action("x")]

    with pytest.raises(InvalidOptionError, match="1 actions for 3"):
        best_of_n(TASK, Short(), 3, pool="fake")


@given(st.lists(st.one_of(st.just(math.nan), st.floats(0.01, 100)), min_size=1, max_size=30))
def test_the_best_is_the_first_of_the_greatest(speeds):
    trials = tuple(
        Trial(str(n), "", 1, "", "wrong" if math.isnan(speed) else "correct", speed, 0.0)
        for n, speed in enumerate(speeds)
    )
    result = SearchResult("refine", TASK, trials, True)
    right = [speed for speed in speeds if not math.isnan(speed)]
    assert (result.best is None) == (not right)
    assert result.curve[-1] == max(right, default=0.0)
    if right:
        assert result.best.id == str(speeds.index(max(right)))


def test_refinement_beats_samples_where_results_are_learned_from():
    knobs = {name: (1, 2, 4, 8, 16) for name in ("a", "b", "c", "d")}
    schedules = {}
    for a in range(5):
        for b in range(5):
            for c in range(5):
                for d in range(5):
                    key = f"a={2**a} b={2**b} c={2**c} d={2**d}"
                    schedules[key] = 100.0 * 1.3 ** (abs(a - 3) + abs(b - 1) + abs(c - 2) + abs(d - 4))
    world = SimulatedConfig({TASK: SimulatedTask(400.0, schedules=schedules, noise=0.01)})

    def best(method, seed, **options):
        pools.register("searching", lambda: SimulatedPool(world, seed))
        return run_method(method, TASK, SimulatedPolicy(knobs), pool="searching", seed=seed, **options).best.speedup

    won = [best("refine", seed, turns=48) - best("best_of_n", seed, n=48) for seed in range(8)]
    assert sum(won) / len(won) > 0.2


CHILD = """
import sys, time
from kernelgym_env import pools
from kernelgym_env.policies.choosing import SamplerPolicy
from kernelgym_env.pools.simulated import SimulatedPool
from kernelgym_env.pools.simulated_tasks import SimulatedConfig
from kernelgym_env.search import beam
pools.register("searching", lambda: SimulatedPool(SimulatedConfig(latency_s=0.02, lanes=4)))
print("ready", flush=True)
beam("KernelGym/RowSum", SamplerPolicy(), 4, 3, 2, 4, pool="searching", folder=sys.argv[1], at_once=4)
"""


def test_it_goes_on_after_it_was_killed(tmp_path):
    for patience in (0.15, 0.3):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        with child:
            child.stdout.readline()
            time.sleep(patience)
            os.kill(child.pid, signal.SIGKILL)
    before = len(list(Store(tmp_path / "turns.jsonl").records())) if (tmp_path / "turns.jsonl").exists() else 0
    pool = fresh_pool()
    result = beam(TASK, SamplerPolicy(), 4, 3, 2, 4, pool=pool, folder=tmp_path, at_once=4)
    assert len(result.trials) == 48 and result.complete
    ids = [record.episode_id for record in Store(tmp_path / "turns.jsonl").records()]
    assert len(ids) == len(set(ids)) == 48 and before <= 48
