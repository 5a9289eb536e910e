"""Several judges on one GPU."""

import pytest
import torch
from gpu_programs import CUPY, PROTOCOL, TASK, TRITON
from programs import task

from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.local import LocalPool

pytestmark = pytest.mark.gpu


def test_several_judges_agree_with_one(judge):
    pytest.importorskip("cupy")
    sources = [TRITON, CUPY, TRITON.replace("* 2,", "* 2.001,"), CUPY]
    alone = [judge(source) for source in sources]
    pool = LocalPool(judges=3)
    try:
        futures = [
            pool.submit(Submission(TASK, source, device="cuda", protocol=PROTOCOL))
            for source in sources
            for _ in range(3)
        ]
        together = [future.result(timeout=300) for future in futures]
        assert len(pool.stats()["judges"]) == 3
        assert pool.stats()["judge_restarts"] == 0
    finally:
        pool.close()
    for number, one in enumerate(together):
        first = alone[number // 3]
        assert one.status is first.status, one.feedback or one.fault
        if one.status is Status.CORRECT:
            assert one.speedup == pytest.approx(first.speedup, rel=0.1)


LARGE = """

class ModelNew(ModelNew):
    def __init__(self):
        super().__init__()
        self.scratch = torch.empty({size}, dtype=torch.uint8, device="cuda")
"""


def test_what_runs_out_of_memory_beside_others_is_judged_alone():
    size = int(0.6 * torch.cuda.get_device_properties(0).total_memory)
    pool = LocalPool(judges=2)
    try:
        source = TRITON + LARGE.format(size=size)
        futures = [pool.submit(Submission(TASK, source, device="cuda:0", protocol=PROTOCOL)) for _ in range(4)]
        found = [future.result(timeout=300) for future in futures]
        assert pool.stats()["judge_restarts"] == 0
    finally:
        pool.close()
    assert [one.status for one in found] == [Status.CORRECT] * 4, [one.feedback or one.fault for one in found]
    assert any("judged_alone" in one.provenance for one in found)


def test_a_device_that_is_too_small_is_told(judge):
    size = 2 * torch.cuda.get_device_properties(0).total_memory
    evaluation = judge(TRITON + LARGE.format(size=size))
    assert evaluation.status is Status.RUNTIME_ERROR
    assert "out of memory" in evaluation.feedback


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_figure_that_is_too_good_is_confirmed_by_another_device():
    slow = task(
        "        for _ in range(8):\n            y = torch.relu(args[0]) * 2\n        return y",
        "[torch.randn(4096, 4096)]",
    )
    pool = LocalPool()
    try:
        evaluation = pool.submit(Submission(slow, TRITON, device="cuda", protocol=PROTOCOL)).result(timeout=300)
    finally:
        pool.close()
    assert evaluation.status is Status.CORRECT, evaluation.feedback
    retest = evaluation.provenance["retest"]
    assert {retest["first_device"], retest["second_device"]["device"]} == {"cuda:0", "cuda:1"}
    assert retest["second_device"]["confirmed"]
