"""Logarithm, roofline and improvement."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation, Status, Timing
from kernelgym_env.rewards import improvement, kevin, log_speedup, milestone, roofline_fraction


def correct(**numbers):
    return Evaluation("a/b", Status.CORRECT, **numbers)


@given(st.floats(2**-3, 2**4), st.floats(1.01, 2.0))
def test_equal_factors_are_paid_equally(speedup, factor):
    gain = log_speedup(correct(speedup=speedup * factor)) - log_speedup(correct(speedup=speedup))
    assert gain == pytest.approx(math.log2(factor), abs=1e-9)


@given(st.one_of(st.floats(0, 1e9), st.just(math.nan)))
def test_no_correct_kernel_pays_less_than_a_failure(speedup):
    assert log_speedup(Evaluation("a/b", Status.WRONG)) < log_speedup(correct(speedup=speedup)) <= 5.0


def test_bases_and_bounds():
    assert log_speedup(correct(speedup=100.0), base=10) == pytest.approx(2.0)
    assert log_speedup(correct(), low=-1.0) == -1.0
    assert log_speedup(correct(speedup=0.0)) == -3.0
    assert log_speedup(correct(speedup=math.inf)) == 5.0
    assert log_speedup(Evaluation("a/b", Status.FAULT)) == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": 1}, "base above 1"),
        ({"base": math.nan}, "base above 1"),
        ({"low": -5.0}, "failed <= low <= high"),
        ({"high": -4.0}, "failed <= low <= high"),
        ({"high": math.inf}, "finite high"),
    ],
)
def test_log_speedup_refuses_what_is_no_scale(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        log_speedup(correct(speedup=1.0), **options)


@pytest.mark.parametrize(
    ("candidate", "floor", "pays"),
    [
        (50.0, 20.0, 0.4),
        (20.0, 20.0, 1.0),
        (10.0, 20.0, 1.0),
        (math.nan, 20.0, 0.0),
        (20.0, math.nan, 0.0),
        (0.0, 1.0, 0.0),
    ],
)
def test_the_fraction_of_the_roofline(candidate, floor, pays):
    times = {"candidate": Timing(candidate), "floor": Timing(floor)}
    assert roofline_fraction(correct(times=times)) == pays
    assert roofline_fraction(Evaluation("a/b", Status.WRONG, times=times)) == 0.0


outcomes = st.lists(
    st.one_of(
        st.builds(lambda speedup: correct(speedup=speedup), st.floats(0.01, 100)),
        st.sampled_from([Evaluation("a/b", status) for status in Status if status is not Status.CORRECT]),
    ),
    max_size=8,
)


@given(outcomes)
def test_improvements_add_up_to_the_best_score(evaluations):
    best, total = 0.0, 0.0
    for evaluation in evaluations:
        reward = improvement(evaluation, best)
        assert reward >= 0.0
        total += reward
        best = max(best, kevin(evaluation))
    assert total == pytest.approx(max((kevin(evaluation) for evaluation in evaluations), default=0.0))


def test_a_fault_is_no_improvement_on_a_failure():
    # It scores 0, which is more than a milestone's -1.
    for status in (Status.FAULT, Status.TASK_INVALID):
        assert improvement(Evaluation("a/b", status), -1.0, score=milestone) == 0.0
    assert improvement(correct(), -1.0, score=milestone) == 2.0
    with pytest.raises(InvalidOptionError, match="Start with"):
        improvement(correct(), math.nan)
