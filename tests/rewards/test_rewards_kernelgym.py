"""Dr. Kernel's reward and the two others in KernelGYM's code."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.credit import turn_returns
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.rewards import dr_kernel, kernelgym_tiers, kernelgym_weighted


def correct(speedup=math.nan, coverage=math.nan):
    return Evaluation("a/b", Status.CORRECT, speedup=speedup, coverage=coverage)


@pytest.mark.parametrize(
    ("speedup", "coverage", "paper", "released"),
    [(4.2, 0.8615, 4.8615, 2.43075), (1.02, 0.00014, 2.02014, 1.01007)],
)
def test_the_two_forms_of_dr_kernel(speedup, coverage, paper, released):
    assert dr_kernel(correct(speedup, coverage)) == pytest.approx(paper, rel=1e-12)
    assert dr_kernel(correct(speedup, coverage), form="released") == pytest.approx(released, rel=1e-12)


def test_wrong_kernels_earn_nothing():
    assert dr_kernel(Evaluation("a/b", Status.WRONG, speedup=4.2, coverage=0.8615)) == 0.0


def test_turns_without_the_profiling_reward():
    scores = [dr_kernel(correct(speedup, 0.5), coverage_weight=0) for speedup in (1.04, 1.21, 1.45)]
    assert turn_returns(scores, 1.0) == pytest.approx([6.70, 4.66, 2.45], rel=1e-12)


def test_figures_of_the_release():
    # A tenfold slowdown earns 0.55; equal speed with a coverage of 0.3 earns 1.15.
    assert dr_kernel(correct(0.1), form="released") == pytest.approx(0.55)
    assert dr_kernel(correct(1.0, 0.3), form="released") == pytest.approx(1.15)
    assert dr_kernel(correct(1.0, 0.4), form="released", coverage_weight=0.25) == pytest.approx(1.1)


def test_a_speed_below_the_lower_bound_counts_as_none():
    assert dr_kernel(correct(0.9), lower=1.0) == 1.0
    assert dr_kernel(correct(1.0), lower=1.0) == 2.0


def test_what_was_not_measured_adds_nothing():
    assert dr_kernel(correct()) == 1.0
    assert dr_kernel(correct(2.0)) == 3.0
    assert dr_kernel(correct(coverage=0.5)) == 1.5


@given(st.floats(0, 1e3), st.floats(0, 1), st.floats(0.1, 10))
def test_the_range_of_dr_kernel(speedup, coverage, cap):
    paper, released = (dr_kernel(correct(speedup, coverage), form=form, cap=cap) for form in ("paper", "released"))
    assert 1.0 <= paper <= 2.0 + cap
    assert released == pytest.approx(paper / 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"cap": 0}, "cap"), ({"lower": -1}, "lower bound"), ({"coverage_weight": -0.5}, "coverage_weight")],
)
def test_dr_kernel_refuses_options_outside_their_range(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        dr_kernel(correct(), **options)


def test_an_unknown_form_is_named():
    with pytest.raises(UnknownNameError, match="Did you mean 'released'"):
        dr_kernel(correct(), form="release")


@pytest.mark.parametrize(
    ("speedup", "pays"),
    [
        (0.999, -0.1),
        (1.0, 0.2),
        (1.19, 0.2),
        (1.2, 0.4),
        (1.5, 0.6),
        (2.0, 0.8),
        (2.99, 0.8),
        (3.0, 1.0),
        (50.0, 1.0),
        (math.nan, -0.1),
    ],
)
def test_the_tiers(speedup, pays):
    assert kernelgym_tiers(correct(speedup)) == pays


def test_tiers_of_one_s_own():
    tiers = [[1.0, 0.1], [4.0, 2.0]]
    assert [kernelgym_tiers(correct(speedup), tiers=tiers) for speedup in (0.5, 1.0, 4.0)] == [-0.1, 0.1, 2.0]
    assert kernelgym_tiers(correct(5.0), tiers=[], slower=0.0) == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tiers": [1.0]}, "pairs"),
        ({"tiers": [(1.0, 2.0, 3.0)]}, "pairs"),
        ({"tiers": [(math.nan, 1.0)]}, "finite edge"),
        ({"failed": -math.inf}, "finite failed"),
    ],
)
def test_tiers_that_are_none_are_refused(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        kernelgym_tiers(correct(), **options)


def test_the_weighted_reward():
    assert [kernelgym_weighted(correct(speedup)) for speedup in (1.0, 1.0099, 1.01)] == [0.5, 0.5, 1.0]
    assert kernelgym_weighted(correct(2.0, 0.4), coverage_weight=0.25) == pytest.approx(1.1)
    assert kernelgym_weighted(correct(), coverage_weight=0.25) == 0.5
    assert kernelgym_weighted(Evaluation("a/b", Status.WRONG, speedup=2.0)) == 0.0
    with pytest.raises(InvalidOptionError, match="positive edge"):
        kernelgym_weighted(correct(), edge=0)
