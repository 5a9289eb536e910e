"""The rewards as data agree with the functions."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env import rewards
from kernelgym_env.errors import UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Status, Timing
from kernelgym_env.rewards import REWARDS, get_reward, reward_table

FAILURES = [status for status in Status if status is not Status.CORRECT]

number = st.one_of(st.floats(0.001, 1000), st.just(math.nan))
evaluations = st.builds(
    lambda status, speedup, compiled, coverage, times: Evaluation(
        "a/b",
        status,
        speedup=speedup,
        speedup_compile=compiled,
        coverage=coverage,
        times={
            name: Timing(time) for name, time in zip(("candidate", "eager", "compile", "floor"), times, strict=True)
        },
    ),
    st.sampled_from(Status),
    number,
    number,
    st.one_of(st.floats(0, 1), st.just(math.nan)),
    st.tuples(number, number, number, number),
)


@pytest.mark.parametrize("name", REWARDS)
@pytest.mark.parametrize("status", FAILURES)
def test_each_status_pays_what_the_table_says(name, status):
    measured = {name: Timing(1.0) for name in ("candidate", "eager", "compile", "floor")}
    for evaluation in (
        Evaluation("a/b", status),
        Evaluation("a/b", status, speedup=9.0, speedup_compile=9.0, coverage=1.0, times=measured),
    ):
        value = REWARDS[name].function(evaluation)
        assert value == REWARDS[name].pays[status] == reward_table()[name][status.value]
        assert type(value) is float


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
def test_nothing_pays_more_than_being_correct(reward):
    assert set(reward.pays) == set(FAILURES)
    least = reward.function(Evaluation("a/b", Status.CORRECT))
    for status in FAILURES:
        if status not in (Status.FAULT, Status.TASK_INVALID):
            assert reward.pays[status] <= least
        else:
            assert reward.pays[status] == 0.0
    assert reward.pays[Status.POLICY] <= reward.pays[Status.WRONG]
    assert reward.pays[Status.INTEGRITY] <= reward.pays[Status.WRONG]


@given(evaluations)
def test_ranges_and_determinism(evaluation):
    for reward in REWARDS.values():
        value = reward.function(evaluation)
        assert reward.low <= value <= reward.high
        assert reward.function(Evaluation.from_dict(evaluation.to_dict())) == value
        assert reward.deterministic


@given(evaluations)
def test_a_missing_measurement_never_pays(evaluation):
    for reward in REWARDS.values():
        for path in reward.needs:
            field, _, name = path.partition(".")
            lost = {field: {**evaluation.times, name: Timing()} if name else math.nan}
            assert reward.function(dataclasses.replace(evaluation, **lost)) <= reward.function(evaluation)


def test_what_is_missing_is_listed():
    assert get_reward("dr_kernel").missing(Evaluation("a/b", Status.CORRECT, coverage=0.5)) == ("speedup",)
    timed = Evaluation("a/b", Status.CORRECT, times={"candidate": Timing(1.0), "eager": Timing(2.0)})
    assert get_reward("milestone").missing(timed) == ("times.compile",)
    assert get_reward("milestone").missing(Evaluation("a/b", Status.WRONG)) == ()
    assert get_reward("tritonrl_code").missing(Evaluation("a/b", Status.CORRECT)) == ()


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
def test_what_is_needed_is_read(reward):
    """A reward changes with what it needs and with nothing else."""
    base = {"speedup": 1.3, "speedup_compile": 1.3, "speedup_graph": 1.3, "coverage": 0.4}
    times = {"candidate": 1.0, "eager": 1.3, "compile": 1.3, "graph": 1.3, "floor": 0.5}

    def pays(**changed):
        numbers = {name: changed.get(name, value) for name, value in base.items()}
        clocks = {name: Timing(changed.get(f"times.{name}", value)) for name, value in times.items()}
        return reward.function(Evaluation("a/b", Status.CORRECT, times=clocks, **numbers))

    read = {path for path in (*base, *(f"times.{name}" for name in times)) if pays(**{path: math.nan}) != pays()}
    assert read == set(reward.needs)


def test_names_are_found_or_explained():
    assert get_reward("kevin").function is rewards.kevin
    assert all(getattr(rewards, name) is reward.function for name, reward in REWARDS.items())
    assert list(reward_table()) == list(REWARDS)
    with pytest.raises(UnknownNameError, match="Unknown reward 'kevn'. Did you mean 'kevin'"):
        get_reward("kevn")
    with pytest.raises(TypeError):
        REWARDS["kevin"] = REWARDS["makora"]


def test_rewards_import_no_torch(repo_root):
    import subprocess
    import sys

    code = "import sys, kernelgym_env.rewards, kernelgym_env.credit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=repo_root, timeout=60).returncode == 0
