"""What a speed is held against on a GPU, and when it is measured again."""

import math

import pytest
from gpu_programs import PROTOCOL, TASK, TRITON
from programs import task

from kernelgym_env.evaluation.result import Status

pytestmark = pytest.mark.gpu

MANY = task(
    "        for _ in range(8):\n            y = torch.relu(args[0]) * 2\n        return y", "[torch.randn(4096, 4096)]"
)
SMALL = task("        return torch.tanh(args[0] * 2 + 1).abs().sqrt()", "[torch.randn(64, 64)]")


def test_a_graph_is_another_baseline(judge):
    source = SMALL.source.replace("class Model(", "class ModelNew(")
    evaluation = judge(source, SMALL, protocol=PROTOCOL.replace(baselines=("graph",)))
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    assert evaluation.provenance["baseline_problems"] == {}
    assert evaluation.times["graph"].n > 0
    # the flush before each call hides what launches take, so little is left for a graph to save
    assert evaluation.speedup_graph == pytest.approx(evaluation.speedup, rel=0.3)


def test_a_high_speedup_is_confirmed_by_new_processes(judge):
    evaluation = judge(TRITON, MANY)
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    again = evaluation.provenance["retest"]
    assert "above 3" in again["why"]
    assert again["confirmed"]
    assert evaluation.speedup == min(again["first"], again["again"])


def test_the_floor_of_a_known_device_lies_below_honest_times(judge):
    evaluation = judge(TRITON, TASK)
    floor = evaluation.times["floor"].median_us
    if math.isnan(floor):
        pytest.skip(f"no data sheet of {evaluation.provenance['hardware']['name']}")
    assert 0.05 * evaluation.times["candidate"].median_us < floor < evaluation.times["candidate"].median_us


def test_what_else_uses_the_device_is_looked_at(judge):
    neighbours = judge(TRITON, TASK).provenance["neighbours"]
    assert set(neighbours) >= {"device_shared", "neighbours_busy", "clocks_held_by", "before", "after"}
    assert neighbours["before"]["gpu"]["sm_mhz"] > 0


ON_A_SIDE = """
SIDE = torch.cuda.Stream()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        {wait}
        with torch.cuda.stream(SIDE):
            kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1024)
        torch.cuda.current_stream().wait_stream(SIDE)
        return y
"""


@pytest.mark.parametrize(
    ("wait", "status"),
    [("pass", Status.WRONG), ("SIDE.wait_stream(torch.cuda.current_stream())", Status.CORRECT)],
    ids=["unordered", "ordered"],
)
def test_inputs_that_are_not_waited_for_are_found_out(judge, wait, status):
    evaluation = judge(TRITON.partition("class ModelNew")[0] + ON_A_SIDE.format(wait=wait))
    assert evaluation.status is status, evaluation.feedback
