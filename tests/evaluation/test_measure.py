"""One side of a measurement, with a real worker: what is on the judge's clock, and what is not."""

from __future__ import annotations

from programs import task

from kernelgym_env.evaluation.judging import Judging, Stages, flushed
from kernelgym_env.evaluation.measure import Given, Side
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.reference import Reference
from kernelgym_env.evaluation.session import Session
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.evaluation.workers import Worker

TASK = task("        return args[0] * 2", "[torch.randn(8, 8)]")
SLOW = """
import time
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep({seconds})
        return x * 2
"""


def side(session: Session, seconds: float, *, warm: bool) -> tuple[Judging, Side, list[str]]:
    """A side whose calls take so long, and what happens to its inputs."""
    protocol = get_protocol("strict")
    submission = Submission(TASK, SLOW.format(seconds=seconds), device="cpu", protocol=protocol)
    judging = Judging(
        submission, protocol, session.zygote, device="cpu", threads=1, environ={}, stages=Stages(), spares=None
    )
    reference = Reference(TASK.for_device("cpu"), "cpu", 0, protocol)
    worker: Worker = judging.launch(0, reference.init_tree)
    reference.construct()
    reference.probe(1)
    case = reference.case(2)
    judging.share([case], reference)
    judging.started()
    judging.attach(worker)
    judging.present(worker, case, reference)
    happened: list[str] = []
    command = {"op": "time", "out": reference.out_tree, "step": reference.out_size, **flushed(protocol)}
    made = Side(
        worker,
        command,
        lambda calls: Given([[]] * calls, lambda: happened.append("written"), lambda answer: happened.append("told")),
        warm=warm,
    )
    return judging, made, happened


def test_a_call_made_ahead_of_a_single_one_is_not_time_that_was_not_reported(session: Session) -> None:
    judging, slow, happened = side(session, 0.01, warm=True)
    try:
        for _ in range(3):
            (us,) = slow.time(1, 60)
            assert 10_000 < us < 20_000
        assert happened == ["written", "told"] * 3
        assert min(slow.beyond_us) < 5_000  # and not a whole call
    finally:
        judging.close()
