"""Rejection sampling by coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.credit import prs_probabilities, prs_sample
from kernelgym_env.errors import InvalidOptionError, UnknownNameError

shares = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def test_worked_examples():
    coverage = [0.00014, 0.30, 0.33, 0.35, 0.40, 0.8615, 0.00014]
    correct = [True] * 6 + [False]
    assert prs_probabilities(coverage, correct) == pytest.approx([0, 0, 0.3, 0.5, 1, 1, 1], abs=1e-12)


@given(shares, st.floats(0, 1), st.floats(0, 1))
def test_probabilities_rise_with_the_coverage(coverage, threshold, softness):
    rising = sorted(coverage)
    kept = prs_probabilities(rising, [True] * len(rising), threshold=threshold, softness=softness)
    assert ((kept >= 0) & (kept <= 1)).all()
    assert (np.diff(kept) >= 0).all()
    assert (prs_probabilities(rising, [False] * len(rising), threshold=threshold) == 1).all()


def test_without_softness_there_is_a_step():
    assert prs_probabilities([0.29, 0.30, 0.31], [True] * 3, softness=0).tolist() == [0.0, 0.0, 1.0]


def test_an_unknown_coverage_is_kept_unless_told_otherwise():
    assert prs_probabilities([math.nan, 0.0], [True, True]).tolist() == [1.0, 0.0]
    assert prs_probabilities([math.nan, math.nan], [True, False], unknown=0.25).tolist() == [0.25, 1.0]


def test_fast_kernels_may_be_kept_in_any_case():
    kept = prs_probabilities([0.0, 0.0, 0.0], [True] * 3, speedups=[1.0, 1.5, math.nan], speedup_threshold=1.5)
    assert kept.tolist() == [0.0, 1.0, 0.0]


def test_the_geometric_level_takes_a_row_together():
    coverage = [[0.5, 0.2, 0.9], [0.8, 0.0, 0.8], [math.nan, math.nan, 0.1], [0.36, 0.36, 0.36]]
    correct = [[True, True, False], [True, True, True], [True, True, False], [True, True, True]]
    kept = prs_probabilities(coverage, correct, level="geometric")
    together = (math.sqrt(0.5 * 0.2) - 0.3) / 0.1
    assert kept[0] == pytest.approx([together, together, 1.0])
    assert kept[1] == pytest.approx([0, 0, 0])  # one turn without own work
    assert kept[2] == pytest.approx([1, 1, 1])
    assert kept[3] == pytest.approx([0.6, 0.6, 0.6])
    masked = prs_probabilities(coverage[0], correct[0], level="geometric", mask=[True, False, True])
    assert masked.tolist() == [1.0, 0.0, 1.0]


@given(st.floats(0, 1), st.integers(1, 5))
def test_equal_turns_make_the_levels_equal(share, turns):
    coverage, correct = [share] * turns, [True] * turns
    assert prs_probabilities(coverage, correct, level="geometric") == pytest.approx(
        prs_probabilities(coverage, correct), abs=1e-9
    )


def test_samples_follow_their_probabilities():
    probabilities = np.tile([0.0, 0.25, 0.5, 1.0], (20_000, 1))
    kept = prs_sample(probabilities, rng=0)
    share = kept.mean(axis=0)
    assert share[0] == 0
    assert share[3] == 1
    assert share[1:3] == pytest.approx([0.25, 0.5], abs=4 * math.sqrt(0.25 / 20_000))
    assert abs(np.corrcoef(kept[:, 1], kept[:, 2])[0, 1]) < 0.03
    assert np.array_equal(kept, prs_sample(probabilities, rng=0))
    assert not np.array_equal(kept, prs_sample(probabilities, rng=1))


def test_rows_are_drawn_together_in_the_geometric_level():
    kept = prs_sample(np.full((2000, 3), 0.5), np.random.default_rng(0), level="geometric")
    assert (kept.all(axis=1) | ~kept.any(axis=1)).all()
    assert kept[:, 0].mean() == pytest.approx(0.5, abs=0.05)
    mixed = prs_sample(np.tile([0.5, 1.0], (200, 1)), rng=0, level="geometric")
    assert mixed[:, 1].all()


def test_masked_turns_are_not_kept():
    assert prs_sample([1.0, math.nan], rng=0, mask=[True, False]).tolist() == [True, False]
    assert prs_probabilities([0.9, 7.0], [True, True], mask=[True, False]).tolist() == [1.0, 0.0]


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    kept = prs_probabilities(torch.tensor([0.35, 0.0]), torch.tensor([True, False]))
    assert kept == pytest.approx([0.5, 1.0], abs=1e-6)
    assert prs_sample(torch.tensor([0.0, 1.0]), rng=0).tolist() == [False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": [1.5]}, "coverage must be from 0 to 1 or NaN, got 1.5"),
        ({"coverage": 0.5}, "axis of turns"),
        ({"correct": [True, True]}, "correct must have the shape"),
        ({"threshold": -0.1}, "threshold"),
        ({"softness": -0.1}, "softness"),
        ({"unknown": 2.0}, "unknown"),
        ({"speedup_threshold": 1.5}, "needs speedups"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    arguments = {"coverage": [0.5], "correct": [True], **options}
    with pytest.raises(InvalidOptionError, match=message):
        prs_probabilities(arguments.pop("coverage"), arguments.pop("correct"), **arguments)


def test_samples_of_what_is_no_probability_are_refused():
    with pytest.raises(InvalidOptionError, match="from 0 to 1, got 1.5"):
        prs_sample([1.5], rng=0)
    with pytest.raises(InvalidOptionError, match="axis of turns"):
        prs_sample(0.5, rng=0)
    for call in (
        lambda: prs_sample([0.5], rng=0, level="tern"),
        lambda: prs_probabilities([0.5], [True], level="tern"),
    ):
        with pytest.raises(UnknownNameError, match="Did you mean 'turn'"):
            call()
