"""What the best of k samples reaches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.credit import best_at_k, pass_at_k
from kernelgym_env.errors import InvalidOptionError

scores = st.lists(st.floats(-100, 100), min_size=1, max_size=8)


def test_worked_examples():
    values = [best_at_k([0, 0, 1.3, 1.8], k) for k in (1, 2, 3, 4)]
    assert values == pytest.approx([0.775, 4 / 3, 1.675, 1.8], rel=1e-12)
    assert pass_at_k(16, 3, 8) == 0.9


@given(scores, st.data())
def test_best_at_k_is_the_mean_over_all_subsets(values, data):
    k = data.draw(st.integers(1, len(values)))
    subsets = [max(subset) for subset in itertools.combinations(values, k)]
    assert best_at_k(values, k) == pytest.approx(sum(subsets) / len(subsets), abs=1e-9)


@given(scores, st.randoms(use_true_random=False))
def test_best_at_k_rises_from_the_mean_to_the_best(values, random):
    curve = [best_at_k(values, k) for k in range(1, len(values) + 1)]
    assert curve[0] == pytest.approx(np.mean(values), abs=1e-9)
    assert curve[-1] == max(values)
    assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(curve))
    shuffled = random.sample(values, len(values))
    assert [best_at_k(shuffled, k) for k in range(1, len(values) + 1)] == curve


@given(st.integers(1, 40), st.data())
def test_pass_at_k_is_best_at_k_of_zeros_and_ones(n, data):
    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    marks = [1.0] * correct + [0.0] * (n - correct)
    assert pass_at_k(n, correct, k) == pytest.approx(best_at_k(marks, k), abs=1e-12)
    exact = 1 - math.comb(n - correct, k) / math.comb(n, k)
    assert pass_at_k(n, correct, k) == pytest.approx(exact, abs=1e-12)


def test_it_is_unbiased():
    """The mean of best@2 from five samples is the expected best of two fresh ones, here 2/3 for the uniform law."""
    rng = np.random.default_rng(0)
    estimates = np.array([best_at_k(row, 2) for row in rng.random((4000, 5))])
    assert abs(estimates.mean() - 2 / 3) < 3 * estimates.std(ddof=1) / math.sqrt(len(estimates))


def test_large_numbers_do_not_overflow():
    assert best_at_k(np.ones(5000), 2500) == pytest.approx(1.0, rel=1e-9)
    assert pass_at_k(5000, 1, 2500) == 0.5


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    assert best_at_k(torch.tensor([1, 3]), 2) == 3.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: best_at_k([1.0, 2.0], 0), "k must be from 1 to the number of scores"),
        (lambda: best_at_k([1.0, 2.0], 3), "k must be from 1 to the number of scores"),
        (lambda: best_at_k([], 1), "k must be from 1"),
        (lambda: best_at_k([[1.0]], 1), "shape"),
        (lambda: best_at_k([math.nan], 1), r"scores\[0\] is nan"),
        (lambda: pass_at_k(4, 5, 1), "correct must be from 0 to n"),
        (lambda: pass_at_k(4, 1, 5), "k must be from 1 to n"),
        (lambda: pass_at_k(4, 1, 0), "k must be from 1 to n"),
        (lambda: best_at_k([1.0, 2.0], 2.0), "k must be a whole number, got 2.0"),
        (lambda: best_at_k([1.0, 2.0], "1"), "k must be a whole number, got '1'"),
        (lambda: pass_at_k(4, 2.5, 1), "correct must be a whole number, got 2.5"),
    ],
)
def test_what_is_no_sample_is_refused(call, message):
    with pytest.raises(InvalidOptionError, match=message):
        call()
