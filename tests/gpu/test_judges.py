"""Several judges on one GPU."""

import pytest
from gpu_programs import CUPY, PROTOCOL, TASK, TRITON

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
