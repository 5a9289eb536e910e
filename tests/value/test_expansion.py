"""Gaussian kernel and expansions in it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.value import KernelExpansion, rbf_kernel

numbers = st.floats(-50, 50)
Q = KernelExpansion([0.0, 1.0], [2.0, -1.0])


def test_the_worked_example():
    assert Q(0.5)[0] == pytest.approx(math.exp(-0.125), abs=1e-15)
    assert Q(0.5)[0] == pytest.approx(0.882497, abs=5e-7)
    assert Q(0.0)[0] == pytest.approx(2 - math.exp(-0.5), abs=1e-15)
    assert Q(0.0)[0] == pytest.approx(1.393469, abs=5e-7)
    assert Q.average(0.5)[0] == pytest.approx(0.5, abs=1e-15)


@given(st.lists(numbers, min_size=1, max_size=6), st.floats(0.1, 10))
def test_a_kernel_matrix_is_symmetric_positive_and_one_on_its_diagonal(points, scale):
    matrix = rbf_kernel(points, points, scale=scale)
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(np.diag(matrix), np.ones(len(points)))
    assert np.linalg.eigvalsh(matrix).min() > -1e-9


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), numbers)
def test_an_average_stays_within_the_weights(pairs, point):
    centres, weights = zip(*pairs, strict=True)
    value = KernelExpansion(centres, weights, scale=0.3).average(point)[0]
    assert min(weights) - 1e-9 <= value <= max(weights) + 1e-9


def test_scales_by_feature():
    assert rbf_kernel([[0.0, 0.0]], [[2.0, 3.0]], scale=[2.0, 3.0])[0, 0] == pytest.approx(math.exp(-1))


@pytest.mark.parametrize("scale", [0.0, -1.0, [1.0, 0.0]])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(ValueError, match="above 0"):
        rbf_kernel([[0.0, 1.0]], [[0.0, 1.0]], scale=scale)


def test_unlike_features_are_refused():
    with pytest.raises(ValueError, match="1 and 2 features"):
        rbf_kernel([0.0], [[0.0, 1.0]])


@pytest.mark.parametrize(("centres", "weights"), [([0.0], [1.0, 2.0]), ([], []), ([0.0], [[1.0]])])
def test_one_weight_a_centre(centres, weights):
    with pytest.raises(ValueError, match="One weight a centre"):
        KernelExpansion(centres, weights)
