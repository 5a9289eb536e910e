"""The kernel's account of a thread against what a submission reports."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import QUICK, task

from kernelgym_env.evaluation.outside import DISAGREE, hidden_us, overstated, supported
from kernelgym_env.evaluation.protocols import Deadlines
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.speed import resolved
from kernelgym_env.evaluation.statistics import pair_ratio
from kernelgym_env.evaluation.submission import Submission

SLOW = task("        return args[0].sin().cos().sin().cos() * self.w", "[torch.randn(2048, 256)]",
            "        self.w = nn.Parameter(torch.randn(256))")  # fmt: skip

HONEST = """
import time
import torch
from torch import nn

KEEP = time.perf_counter_ns
{trick}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        return x.sin().cos().sin().cos() * self.w
"""

TRICK = """
def hundredth():
    return KEEP() // 100

time.perf_counter_ns = hundredth
time.perf_counter = lambda: KEEP() / 1e11
time.monotonic = time.time = time.perf_counter
"""


def test_a_clock_that_runs_slow_is_found_out(judge):
    evaluation = judge(HONEST.format(trick=TRICK), SLOW)
    assert evaluation.status is Status.INTEGRITY, evaluation.feedback
    assert [(finding.id, finding.severity) for finding in evaluation.findings] == [("D6", "hard")]


def test_an_honest_clock_is_believed(judge):
    evaluation = judge(HONEST.format(trick=""), SLOW)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


@pytest.mark.parametrize(("reported", "outside", "factor"), [(10, 5, 1), (10, 10, 1), (10, 25, 2.5), (10, 0, 1)])
def test_only_a_time_that_is_too_short_is_held_against_it(reported, outside, factor):
    assert overstated(reported, outside) == factor


@pytest.mark.parametrize(
    ("act", "status", "said"),
    [
        ("__import__('os')._exit(3)", Status.FAULT, "own process ended: the process exited with code 3"),
        ("1 // 0", Status.FAULT, "own process failed: ZeroDivisionError"),
        ("__import__('time').sleep(60)", Status.TASK_INVALID, "the reference does not finish in time"),
    ],
)
def test_a_reference_that_fails_where_it_is_timed_is_not_booked_on_the_submission(local_pool, act, status, said):
    twin = task(
        f"        if __name__ == 'kernel_submission': {act}\n        return args[0].sin() * 2", "[torch.randn(64, 64)]"
    )
    source = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.sin() * 2\n"
    short = QUICK.replace(deadlines=Deadlines(run_s=3))
    evaluation = local_pool.submit(Submission(twin, source, device="cpu", protocol=short)).result(timeout=120)
    assert evaluation.status is status
    assert said in evaluation.feedback + evaluation.fault


TIMES = st.lists(st.floats(0, 1e6), min_size=1, max_size=40)


@given(TIMES, st.booleans())
def test_like_sides_hide_nothing(times, on_cpu):
    assert hidden_us(times, times, on_cpu=on_cpu) == 0.0


@given(TIMES, TIMES, st.floats(0, 1e6), st.booleans())
def test_more_time_beyond_the_reported_is_never_less_hidden(candidate, twin, more, on_cpu):
    before = hidden_us(candidate, twin, on_cpu=on_cpu)
    assert before <= hidden_us([value + more for value in candidate], twin, on_cpu=on_cpu) <= before + more + 1e-6


def test_what_is_hidden_in_each_call_shows_on_a_busy_machine():
    rng = random.Random(0)
    busy = [[400 + rng.choice((0, 0, 3000)) * rng.random() for _ in range(60)] for _ in range(2)]
    assert hidden_us(*busy, on_cpu=True) == 0.0
    assert hidden_us([value + 1500 for value in busy[0]], busy[1], on_cpu=True) > 1000


@pytest.mark.parametrize(("lies", "of", "factor"), [(3, 8, 4), (4, 9, 9), (3, 10, 100), (1, 2, 3)])
@pytest.mark.parametrize("calls", [1, 6])
@pytest.mark.parametrize("on_cpu", [True, False])
def test_times_that_are_wrong_in_some_blocks_gain_nothing(lies, of, factor, calls, on_cpu):
    rng = random.Random(0)
    true = [[rng.gauss(5000, 50) for _ in range(calls)] for _ in range(40)]
    theirs = [[rng.gauss(5000, 50) for _ in range(calls)] for _ in range(40)]
    reported = [[us / factor for us in block] if n * lies % of < lies else block for n, block in enumerate(true)]
    hidden = [sum(block) - sum(told) for block, told in zip(true, reported, strict=True)]
    if on_cpu:  # a command a call
        beyond = [us - told for a, b in zip(true, reported, strict=True) for us, told in zip(a, b, strict=True)]
    else:
        beyond = [us / calls for us in hidden]
    beyond, twin = ([us + rng.uniform(200, 260) for us in side] for side in (beyond, [0.0] * len(beyond)))
    paid = pair_ratio(theirs, reported)[0]
    left = supported(theirs, reported, beyond, twin, on_cpu=on_cpu)
    assert left == pytest.approx(1, rel=0.05)
    assert overstated(left, paid) > DISAGREE


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("calls", [1, 20])
def test_a_busy_machine_is_not_held_against_a_fast_kernel(share, calls):
    rng = random.Random(1)
    n = 20 * calls
    mine, theirs = ([[rng.gauss(us, us / 40) for _ in range(calls)] for _ in range(20)] for us in (100, 5000))
    beyond, twin = ([300 + (rng.random() < share) * rng.uniform(0, 4000) for _ in range(n)] for _ in range(2))
    left = supported(theirs, mine, beyond, twin, on_cpu=True)
    assert overstated(left, pair_ratio(theirs, mine)[0]) < DISAGREE


@pytest.mark.parametrize("figures", [(2.0, 1.2, 2.6), (1.0, 1.0, 1.0)])
def test_repeats_that_agree_resolve_a_speedup(figures):
    assert resolved(*figures)


@pytest.mark.parametrize("figures", [(8.0, 0.5, 9.0), (1.0, 0.4, 1.5)])
def test_repeats_that_disagree_do_not(figures):
    assert not resolved(*figures)
