import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.rewards import kevin


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.CORRECT])
def test_kevin_pays_nothing_but_for_correct(status):
    assert kevin(Evaluation("a/b", status, speedup=5.0)) == 0.0


@pytest.mark.parametrize(("speedup", "reward"), [(1.0, 1.3), (0.5, 0.8), (9.61, 9.91), (math.nan, 0.3)])
def test_kevin_pays_three_tenths_and_the_speedup(speedup, reward):
    value = kevin(Evaluation("a/b", Status.CORRECT, speedup=speedup))
    assert value == pytest.approx(reward, rel=1e-15)
    assert type(value) is float


@given(st.floats(0.001, 1000), st.floats(0, 10), st.floats(0.1, 10))
def test_kevin_stays_in_its_range(speedup, weight, cap):
    value = kevin(Evaluation("a/b", Status.CORRECT, speedup=speedup), weight=weight, cap=cap)
    assert weight <= value <= weight + cap


@pytest.mark.parametrize("options", [{"weight": -1}, {"weight": math.nan}, {"cap": 0}, {"cap": math.nan}])
def test_kevin_refuses_options_outside_their_range(options):
    with pytest.raises(InvalidOptionError, match=next(iter(options))):
        kevin(Evaluation("a/b", Status.CORRECT, speedup=1.0), **options)
