"""Figures over a set of tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.metrics import Interval, avg_at_k, best_at_k, bootstrap, correctness, fast_p, geomean, pass_at_k

WRONG = math.nan
EXAMPLE = (1.0, 1.2, 2.0, WRONG)
speedups = st.lists(st.one_of(st.just(WRONG), st.floats(0.01, 100)), min_size=1, max_size=20)


@pytest.mark.parametrize(("p", "share"), [(0, 0.75), (1, 0.5), (1.2, 0.25), (2, 0.0)])
def test_the_worked_example(p, share):
    assert fast_p(EXAMPLE, p) == share


@pytest.mark.parametrize(("p", "share"), [(0, 0.75), (1, 0.75), (1.2, 0.5), (2, 0.25)])
def test_the_form_that_counts_equality(p, share):
    assert fast_p(EXAMPLE, p, strict=False) == share


def test_the_geometric_mean_of_the_worked_example():
    assert geomean((20, 1.3)) == pytest.approx(5.099, abs=5e-4)
    assert geomean((20, 1.3, WRONG)) == geomean((20, 1.3))
    assert math.isnan(geomean([WRONG]))
    assert geomean([0.0, 1.0]) == 0.0


@given(speedups, st.floats(0, 50), st.floats(0, 50))
def test_a_higher_threshold_is_met_by_no_more(values, one, two):
    low, high = sorted((one, two))
    assert 0 <= fast_p(values, high) <= fast_p(values, low) <= 1
    assert fast_p(values, low) <= fast_p(values, low, strict=False)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_inverse_speedups_have_the_inverse_mean(values):
    assert geomean(values) * geomean(1 / np.array(values)) == pytest.approx(1)
    assert min(values) * (1 - 1e-9) <= geomean(values) <= max(values) * (1 + 1e-9)


@pytest.mark.parametrize("values", [[], [-1.0]])
def test_what_is_no_set_of_speedups_is_refused(values):
    for figure in (lambda: fast_p(values, 1), lambda: geomean(values)):
        with pytest.raises(ValueError, match="No tasks|at least 0"):
            figure()


@pytest.mark.parametrize("p", [-1, math.nan])
def test_what_is_no_threshold_is_refused(p):
    with pytest.raises(ValueError, match="threshold"):
        fast_p([1.0], p)


# --- of one task


@pytest.mark.parametrize(("k", "best"), [(1, 0.775), (2, 4 / 3), (3, 1.675), (4, 1.8)])
def test_best_at_k_and_avg_at_k_of_the_worked_example(k, best):
    scores = (0, 0, 1.3, 1.8)
    assert best_at_k(scores, k) == pytest.approx(best)
    assert avg_at_k(scores, k) == pytest.approx(0.775)


def test_pass_at_k_of_the_worked_example():
    assert pass_at_k(16, 3, 8) == pytest.approx(0.9)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8), st.data())
def test_the_average_is_the_best_of_one_and_no_more_than_the_best(scores, data):
    k = data.draw(st.integers(1, len(scores)))
    assert avg_at_k(scores, k) == pytest.approx(np.mean(scores))
    assert best_at_k(scores, k) >= avg_at_k(scores, k) - 1e-9
    assert best_at_k(scores, len(scores)) == pytest.approx(max(scores))


@pytest.mark.parametrize("k", [0, 3, 1.5, -1])
def test_what_is_no_number_of_samples_is_refused(k):
    with pytest.raises(InvalidOptionError, match=str(k)):
        avg_at_k([1.0, 2.0], k)


# --- correctness


def test_correctness_counts_every_task():
    assert correctness([True, True, True, False]) == 0.75
    assert correctness([1.0, 0.5, 0.0, 0.5]) == 0.5


@pytest.mark.parametrize("values", [[], [1.1], [-0.1], [math.nan]])
def test_what_is_no_set_of_shares_is_refused(values):
    with pytest.raises(ValueError, match="No tasks|from 0 to 1"):
        correctness(values)


# --- intervals


def mean(values):
    return sum(values) / len(values)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20), st.integers(0, 5))
def test_an_interval_is_within_what_the_tasks_reach_and_repeats(values, seed):
    found = bootstrap(values, mean, resamples=50, seed=seed)
    assert found.value == mean(values)
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    assert found == bootstrap(values, mean, resamples=50, seed=seed)


@given(st.lists(st.floats(0, 10), min_size=2, max_size=10))
def test_a_higher_level_is_no_narrower(values):
    narrow, wide = (bootstrap(values, mean, level=level, resamples=100) for level in (0.5, 0.99))
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


def test_intervals_cover_the_true_mean_as_often_as_they_say():
    random = np.random.default_rng(0)
    held = 0
    for seed in range(200):
        low, high = bootstrap(random.normal(1.0, 2.0, size=40).tolist(), mean, resamples=300, seed=seed)[1:]
        held += low <= 1.0 <= high
    assert 0.90 <= held / 200 <= 0.99


def test_a_single_task_has_a_figure_and_no_interval():
    assert str(bootstrap([2.0], mean)) == "Interval(value=2.0, low=nan, high=nan)"


def test_the_interval_of_two_tasks_is_that_of_their_four_draws():
    # 0, 0.5, 0.5 and 1 are equally likely: 2.5% of the draws are below no value but the least
    assert bootstrap([0.0, 1.0], mean, resamples=4000) == Interval(0.5, 0.0, 1.0)
    assert bootstrap([0.0, 1.0], mean, resamples=4000, level=0.4) == Interval(0.5, 0.5, 0.5)


def test_draws_in_which_a_figure_has_no_value_are_left_out():
    found = bootstrap([WRONG, 2.0, 2.0], geomean, resamples=200)
    assert found == pytest.approx((2.0, 2.0, 2.0))
    found = bootstrap([WRONG, WRONG], geomean)
    assert all(math.isnan(value) for value in found)


@pytest.mark.parametrize(
    ("tasks", "options", "said"),
    [
        ([], {}, "No tasks"),
        ([1.0], {"level": 0}, "got 0"),
        ([1.0], {"level": 1.0}, "got 1.0"),
        ([1.0], {"level": math.nan}, "got nan"),
        ([1.0], {"resamples": 0}, "got 0"),
    ],
)
def test_what_is_no_bootstrap_is_refused(tasks, options, said):
    with pytest.raises(ValueError, match=said):
        bootstrap(tasks, mean, **options)
