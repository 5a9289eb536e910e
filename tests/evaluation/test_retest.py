"""Figures that are measured again, in new processes."""

from __future__ import annotations

import math

import pytest
from programs import QUICK, task

from kernelgym_env.evaluation.baselines import DRIFT
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.local import LocalPool

# the reference computes eight times what it needs to
WASTEFUL = task(
    "        for _ in range(8):\n            y = args[0].sin().cos()\n        return y", "[torch.randn(512, 512)]"
)
DIRECT = """
import torch
from torch import nn
{trick}

class ModelNew(nn.Module):
    def forward(self, x):
        return x.sin().cos()
"""
# the clock runs slow in the first process only
FIRST_TIME_FAST = """
import os
import time

SEEN = os.environ["TRITON_CACHE_DIR"] + "/seen"
if not os.path.exists(SEEN):
    os.makedirs(os.path.dirname(SEEN))
    open(SEEN, "w").close()
    keep = time.perf_counter_ns
    time.perf_counter_ns = lambda: keep() // 20
"""
FAILS_AGAIN = """
import os

SEEN = os.environ["TRITON_CACHE_DIR"] + "/seen"
if os.path.exists(SEEN):
    raise RuntimeError("not a second time")
os.makedirs(os.path.dirname(SEEN))
open(SEEN, "w").close()
"""
# fails where it finds what it wrote before
TIDY = """
import os

os.mkdir("kernels")
os.mkdir(os.path.expanduser("~/kernels"))
os.mkdir(os.environ["TMPDIR"] + "/kernels")
"""


def test_a_high_speedup_is_confirmed_by_new_processes(judge):
    for _ in range(3):  # where a machine is busy, the figure may be unresolved, or the clocks at odds
        evaluation = judge(DIRECT.format(trick=""), WASTEFUL)
        assert evaluation.status is Status.CORRECT, evaluation.feedback
        again = evaluation.provenance["retest"]
        if "above 3" in again.get("why", ""):
            break
    assert "above 3" in again["why"]
    assert evaluation.speedup == min(again["first"], again["again"])


def test_an_ordinary_speedup_is_not_measured_again(judge):
    source = WASTEFUL.source.replace("class Model(", "class ModelNew(")
    evaluation = judge(source, WASTEFUL)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.provenance["retest"] == {}


def test_a_jump_over_the_best_so_far_is_measured_again(judge):
    source = WASTEFUL.source.replace("class Model(", "class ModelNew(")
    evaluation = judge(source, WASTEFUL, previous_best=0.2)
    assert "the best one before" in evaluation.provenance["retest"]["why"]


def test_what_one_process_shows_does_not_count(judge):
    evaluation = judge(DIRECT.format(trick=FIRST_TIME_FAST), WASTEFUL)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    again = evaluation.provenance["retest"]
    assert "clock outside" in again["why"]
    # twice the honest figure at most, where the clock said twenty times
    assert evaluation.speedup < 24


def test_a_source_that_fails_the_second_time_is_judged_by_that(judge):
    evaluation = judge(DIRECT.format(trick=FAILS_AGAIN), WASTEFUL)
    assert evaluation.status is Status.RUNTIME_ERROR
    assert "not a second time" in evaluation.feedback
    assert math.isnan(evaluation.speedup)


def test_a_source_that_writes_files_finds_none_of_them_the_second_time(judge):
    evaluation = judge(DIRECT.format(trick=TIDY), WASTEFUL)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.provenance["retest"]["counts"]


@pytest.mark.slow
def test_baselines_are_measured_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path))
    source = WASTEFUL.source.replace("class Model(", "class ModelNew(")
    submission = Submission(WASTEFUL, source, device="cpu", protocol=QUICK.replace(baselines=("compile", "graph")))
    pool = LocalPool(threads=1)
    try:
        evaluation, again = (pool.submit(submission).result(timeout=300) for _ in range(2))
    finally:
        pool.close()
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert math.isnan(evaluation.speedup_graph)  # there are no CUDA graphs on a CPU
    assert "graph" in evaluation.provenance["baseline_problems"]
    # what is computed eight times, once is enough for a compiler
    assert evaluation.provenance["baseline_problems"].get("compile", "") == ""
    assert evaluation.speedup_compile < evaluation.speedup
    assert evaluation.times["compile"].n > 0
    first, second = (one.times["eager"].median_us for one in (evaluation, again))
    if abs(second / first - 1) <= DRIFT / 2:  # else the machine is too busy to tell
        assert again.times["compile"] == evaluation.times["compile"]
    assert again.times["compile"].n > 0
    assert len(list((tmp_path / "baselines").rglob("*.json"))) == 1
