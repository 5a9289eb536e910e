"""Kevin, CUDA Agent, CUDA-L1, Makora and TritonRL, on the worked examples of their formulas."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Finding, Status, Timing
from kernelgym_env.rewards import (
    CUDA_AGENT,
    Level,
    PlanCode,
    cuda_l1,
    kevin,
    makora,
    milestone,
    round_toward_one,
    tritonrl,
    tritonrl_code,
    tritonrl_plan,
)

speedups = st.floats(1e-3, 1e3)


def correct(**numbers):
    return Evaluation("a/b", Status.CORRECT, **numbers)


def timed(candidate, eager=math.nan, compiled=math.nan, **others):
    times = {"candidate": candidate, "eager": eager, "compile": compiled, **others}
    return correct(times={name: Timing(time) for name, time in times.items()})


# --- Kevin


@pytest.mark.parametrize("finding", ["A1", "A2", "A5"])
@pytest.mark.parametrize("status", [Status.POLICY, Status.INTEGRITY])
def test_a_copy_an_heir_and_a_fallback_earn_nothing_under_kevin(finding, status):
    caught = Evaluation("a/b", status, speedup=1.0, findings=(Finding(finding, "hard", "not its own kernels"),))
    assert kevin(caught) == 0.0


def test_kevin_takes_the_speedup_as_it_is_and_caps_it_where_told():
    assert kevin(correct(speedup=120.0)) == pytest.approx(120.3)
    assert kevin(correct(speedup=120.0), cap=3.0) == pytest.approx(3.3)
    assert kevin(correct(speedup=2.0), weight=0.0) == 2.0


# --- CUDA Agent


@pytest.mark.parametrize(
    ("candidate", "eager", "compiled", "pays"),
    [
        (0.5, 10, 1, 3),
        (1, 1.3, 1.06, 3),
        (1, 1.3, 1.05, 2),
        (1, 1.04, 2, 1),  # beating torch.compile alone is not enough
        (5, 1, 1, 1),
        (0.95, 1, 1, 1),  # (1 - 0.95) / 1 > 0.05 is True in floats
    ],
)
def test_the_milestones_of_cuda_agent(candidate, eager, compiled, pays):
    value = milestone(timed(candidate, eager, compiled))
    assert value == pays
    assert type(value) is float
    assert milestone(Evaluation("a/b", Status.WRONG)) == -1.0


@given(st.integers(1, 10**6), st.integers(0, 3), st.integers(0, 99))
def test_exactly_at_the_edge_is_not_faster(digits, places, percent):
    baseline = Decimal(digits).scaleb(-places)
    edge = baseline * (100 - percent) / 100
    levels = [Level(2.0, percent / 100, ("eager",))]
    assert milestone(timed(float(edge), float(baseline)), levels=levels) == 1.0
    assert milestone(timed(float(edge * Decimal("0.999999999")), float(baseline)), levels=levels) == 2.0
    assert milestone(timed(float(edge * Decimal("1.000000001")), float(baseline)), levels=levels) == 1.0


@pytest.mark.parametrize(
    ("times", "pays"),
    [
        ((1.0, 2.0, math.nan), 2.0),  # no compile baseline: never 3
        ((1.0, math.nan, 2.0), 1.0),
        ((math.nan, 2.0, 2.0), 1.0),
        ((1.0, math.nan, math.nan), 1.0),
    ],
)
def test_a_level_without_its_times_is_not_reached(times, pays):
    assert milestone(timed(*times)) == pays


def test_milestones_read_times_and_no_rounded_speedup():
    assert milestone(correct(speedup=9.0, speedup_compile=9.0)) == 1.0


def test_levels_are_plain_data_in_any_order():
    levels = json.loads(json.dumps([*CUDA_AGENT, Level(5.0, 0.5, ("graph",))]))
    evaluation = timed(1.0, 2.0, 2.0, graph=4.0)
    assert milestone(evaluation, levels=levels) == 5.0
    assert milestone(evaluation, levels=levels[::-1]) == 5.0
    assert milestone(evaluation, levels=[]) == 1.0
    assert milestone(evaluation, levels=[[2.0, 0.05, "eager"]]) == 2.0


def test_levels_need_not_be_nested():
    levels = (Level(2.0, 0.0, ("eager",)), Level(4.0, 0.0, ("compile",)))
    assert milestone(timed(1.0, 0.5, 2.0), levels=levels) == 4.0


@pytest.mark.parametrize("status", [Status.FAULT, Status.TASK_INVALID])
def test_what_is_not_the_submission_s_doing_costs_nothing(status):
    assert milestone(Evaluation("a/b", status)) == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": [(2.0, 1.0, ("eager",))]}, "margin"),
        ({"levels": [(2.0, -0.1, ("eager",))]}, "margin"),
        ({"levels": [(2.0, math.nan, ("eager",))]}, "margin"),
        ({"levels": [(2.0, 0.05, ())]}, "needs a baseline"),
        ({"levels": [(math.inf, 0.05, ("eager",))]}, "finite value"),
        ({"levels": [(2.0, 0.05)]}, r"is \[value, margin, baselines\]"),
        ({"levels": [3]}, r"is \[value, margin, baselines\]"),
        ({"levels": [(0.5, 0.05, ("eager",))]}, "failed <= correct <="),
        ({"failed": 2.0}, "failed <= correct <="),
        ({"failed": math.nan}, "finite failed"),
    ],
)
def test_milestone_refuses_what_is_no_scale(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        milestone(timed(1.0), **options)


def test_an_unknown_baseline_is_named():
    with pytest.raises(UnknownNameError, match="'eagre'. Did you mean 'eager'"):
        milestone(timed(1.0), levels=[(2.0, 0.05, ("eagre",))])
    with pytest.raises(UnknownNameError, match="Allowed: compile, eager, graph"):
        makora(correct(), baseline="cudnn")


# --- CUDA-L1


def test_cuda_l1_pays_the_speedup():
    assert cuda_l1(correct(speedup=18.0)) == 18.0
    assert cuda_l1(correct()) == 0.0
    assert cuda_l1(Evaluation("a/b", Status.WRONG, speedup=18.0)) == 0.0


@pytest.mark.parametrize(
    ("speedup", "rounded"),
    [(1.118, 1.11), (0.992, 1.00), (0.985, 0.99), (1.009, 1.00), (3.499, 3.49), (1.15, 1.15), (0.29, 0.29), (1.0, 1.0)],
)
def test_rounding_towards_one(speedup, rounded):
    assert round_toward_one(speedup) == rounded
    assert cuda_l1(correct(speedup=speedup), decimals=2) == rounded


@given(speedups, st.integers(0, 6))
def test_rounding_never_flatters(speedup, decimals):
    rounded = round_toward_one(speedup, decimals)
    assert min(speedup, 1.0) <= rounded <= max(speedup, 1.0)
    assert abs(rounded - speedup) < 10.0**-decimals
    assert round_toward_one(rounded, decimals) == rounded


def test_rounding_leaves_what_is_no_ratio():
    assert math.isnan(round_toward_one(math.nan))
    assert round_toward_one(math.inf) == math.inf
    assert round_toward_one(123456.789, 0) == 123456.0
    for decimals in (-1, 2.5, True, "2"):
        with pytest.raises(InvalidOptionError, match="decimals"):
            cuda_l1(correct(), decimals=decimals)
        with pytest.raises(InvalidOptionError, match="decimals"):
            round_toward_one(1.5, decimals)


@pytest.mark.parametrize("speedup", [1e27, 1.7976931348623157e308, 5e-324, 1e-30])
@pytest.mark.parametrize("decimals", [0, 2, 30, 2000])
def test_rounding_takes_any_magnitude(speedup, decimals):
    rounded = round_toward_one(speedup, decimals)
    assert 1 <= rounded <= speedup if speedup > 1 else speedup <= rounded <= 1


# --- Makora


@pytest.mark.parametrize(
    ("speedup", "pays"), [(0, 0.3100), (0.5, 0.4256), (1, 0.5498), (1.5, 0.6682), (2, 0.7685), (3, 0.9002)]
)
def test_the_sigmoid_of_makora(speedup, pays):
    assert makora(correct(speedup_compile=speedup)) == pytest.approx(pays, abs=5e-5)


def test_makora_is_measured_against_compile_and_takes_nothing_in_its_place():
    assert makora(correct(speedup=3.0)) == makora(correct(speedup_compile=0.0))
    assert makora(correct(speedup=3.0), baseline="eager") == makora(correct(speedup_compile=3.0))
    assert makora(correct(speedup_graph=3.0), baseline="graph") == makora(correct(speedup_compile=3.0))
    assert makora(correct(speedup_compile=-1.0)) == makora(correct(speedup_compile=0.0))


@given(st.floats(0, 1e6), st.floats(-1e6, 1e6))
def test_makora_stays_between_0_and_1(speedup, delta):
    assert 0.0 <= makora(correct(speedup_compile=speedup), delta=delta) <= 1.0


def test_makora_refuses_a_delta_that_is_no_number():
    with pytest.raises(InvalidOptionError, match="finite delta"):
        makora(correct(), delta=math.nan)


# --- TritonRL


def test_tritonrl_pays_plan_and_code_apart():
    assert tritonrl(correct(speedup=2.5)) == PlanCode(plan=2.5, code=1.0)
    assert tritonrl(correct(speedup=2.5), cap=2.0) == (2.0, 1.0)
    assert tritonrl(correct()) == (0.0, 1.0)
    assert tritonrl_plan(correct(speedup=2.5), cap=2.0) == 2.0
    assert tritonrl_code(correct(speedup=2.5)) == 1.0


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.CORRECT])
def test_an_invalid_reply_earns_nothing_for_either(status):
    assert tritonrl(Evaluation("a/b", status, speedup=2.5)) == (0.0, 0.0)


def test_tritonrl_refuses_a_cap_that_is_not_positive():
    with pytest.raises(InvalidOptionError, match="positive cap"):
        tritonrl(correct(), cap=0.0)
