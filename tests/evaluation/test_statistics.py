import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.evaluation.statistics import (
    bootstrap_median,
    bucketed,
    confirmed,
    pair_ratio,
    rerun_interval,
    timing,
)

positive = st.floats(1e-3, 1e6)


@given(st.lists(positive, min_size=1, max_size=40))
def test_the_interval_holds_the_median_and_stays_within_the_data(values):
    middle, low, high = bootstrap_median(values)
    assert min(values) <= low <= middle * (1 + 1e-12)
    assert middle * (1 - 1e-12) <= high <= max(values)


@given(st.lists(positive, min_size=1, max_size=20), st.floats(0.1, 10))
def test_a_constant_factor_is_found_exactly(times, factor):
    blocks = [[value] for value in times]
    faster = [[value / factor] for value in times]
    speedup, low, high = pair_ratio(blocks, faster)
    assert speedup == pytest.approx(factor)
    assert low == pytest.approx(factor)
    assert high == pytest.approx(factor)


def test_slow_drift_cancels_in_pairs():
    drift = np.linspace(1.0, 3.0, 21)
    speedup, low, high = pair_ratio([[2.0 * d] for d in drift], [[1.0 * d] for d in drift])
    assert (speedup, low, high) == (2.0, 2.0, 2.0)


def test_which_of_a_pair_runs_first_does_not_matter():
    heaps = [1.02, 1.02, 0.98, 0.98, 1.02, 0.98, 1.02, 0.98]
    speedup, low, high = pair_ratio([[2.0 * heap] for heap in heaps], [[1.0]] * 8)
    assert speedup == pytest.approx(2.0, rel=1e-3)
    assert low < 2.0 < high


@pytest.mark.parametrize(("pairs", "beyond"), [(5, 0), (6, 0), (7, 2), (8, 3), (10, 8), (15, 25), (20, 52)])
def test_the_interval_is_that_of_the_signed_rank_tables(pairs, beyond):
    """Greatest statistic that is significant at 5% on two sides, as printed tables have it."""
    rng = np.random.default_rng(pairs)
    logs = np.sort(rng.normal(0, 0.1, pairs))
    _, low, high = pair_ratio([[float(value)] for value in np.exp(logs)], [[1.0]] * pairs)
    means = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    assert (low, high) == (pytest.approx(np.exp(means[beyond])), pytest.approx(np.exp(means[-1 - beyond])))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        reference = [[float(v)] for v in 100 * rng.lognormal(0, 0.05, 15)]
        candidate = [[float(v)] for v in 50 * rng.lognormal(0, 0.05, 15)]
        _, low, high = pair_ratio(reference, candidate)
        hits += low <= 2.0 <= high
    assert hits >= 186


def test_a_rerun_by_another_process_falls_inside_about_as_often_as_it_says():
    rng = np.random.default_rng(6)

    def measured():
        centre = 2.0 * (1 + 0.005 * rng.standard_normal())  # what is the same for all repeats in one process
        blocks = [[float(v)] for v in centre * rng.lognormal(0, 0.01, 15)]
        speedup, low, high = pair_ratio(blocks, [[1.0]] * 15)
        return speedup, rerun_interval(speedup, low, high, 0.005)

    inside = []
    for _ in range(400):
        (_, (low, high)), (again, _) = measured(), measured()
        inside.append(low <= again <= high)
    assert 0.92 <= np.mean(inside) <= 0.99


@given(positive, st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 0.1))
def test_the_interval_of_a_rerun_holds_the_one_of_repeats(ratio, below, above, spread):
    low, high = rerun_interval(ratio, ratio * (1 - below), ratio * (1 + above), spread)
    assert 0 < low <= ratio * (1 - below) * (1 + 1e-9)
    assert high >= ratio * (1 + above) * (1 - 1e-9)
    assert rerun_interval(ratio, ratio, ratio, 0.0) == (ratio, ratio)


@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_values_that_have_no_median_are_refused(values):
    with pytest.raises(ValueError, match="finite"):
        bootstrap_median(values)


@pytest.mark.parametrize(("one", "two"), [([], []), ([[1.0]], []), ([[1.0]], [[0.0]]), ([[]], [[1.0]])])
def test_blocks_that_have_no_ratio_are_refused(one, two):
    with pytest.raises(ValueError, match=r"pairs|ratio"):
        pair_ratio(one, two)


def test_timing_counts_calls_and_keeps_order():
    result = timing([[1.0, 2.0, 3.0], [2.0], [5.0, 6.0]], "cuda_event")
    assert result.n == 6
    assert result.median_us == 2.5
    assert result.low_us <= result.median_us <= result.high_us
    assert result.clock == "cuda_event"


BUCKETS = (1.50, 1.52, 1.49, 1.51, 1.50, 1.53, 2.40)


def test_buckets_of_the_worked_example():
    found = bucketed(BUCKETS)
    assert (found.speedup, round(found.mean, 4), round(found.variance, 4)) == (1.51, 1.6357, 0.0975)
    assert not found.steady
    calm = bucketed(BUCKETS[:-1])
    assert calm.variance == pytest.approx(0.00018, abs=5e-6)
    assert calm.steady


@pytest.mark.parametrize(("again", "accepted"), [(3.7, True), (3.5, False), (4.3, True), (4.5, False), (4.4, True)])
def test_a_second_measurement_confirms_within_a_tenth(again, accepted):
    assert confirmed(4.0, again, tolerance=0.1 + 1e-12) is accepted


@pytest.mark.parametrize("means", [[], [1.0, float("nan")]])
def test_buckets_without_means_are_refused(means):
    with pytest.raises(ValueError, match="finite means"):
        bucketed(means)


def test_nothing_confirms_a_speedup_of_nothing():
    with pytest.raises(ValueError, match="above 0"):
        confirmed(0.0, 1.0)
