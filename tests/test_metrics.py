"""Figures over a set of tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.metrics import fast_p, geomean

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
