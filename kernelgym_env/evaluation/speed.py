"""The timing step: the candidate and the reference's twin in like processes, on the same inputs, under a lock."""

from __future__ import annotations

import random
import time
from typing import Any

from kernelgym_env.evaluation.checking import send_weights
from kernelgym_env.evaluation.judging import Judging, Outcome
from kernelgym_env.evaluation.locks import device_lock
from kernelgym_env.evaluation.measure import Side, measure
from kernelgym_env.evaluation.reference import Case, Reference
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.statistics import timing
from kernelgym_env.evaluation.workers import Worker

__all__ = ["time_both"]


def time_both(judging: Judging, twin: Worker, cases: list[Case], reference: Reference, order_seed: int) -> None:
    """Measure the speedup; fills `judging.figures`.

    Raises:
        Outcome: if a timed call gives a wrong output or an error.
    """
    assert judging.candidate is not None
    with judging.stages.time("start"):
        answer = twin.wait(judging.protocol.deadlines.import_s)
        if "error" in answer:
            raise RuntimeError(f"the reference's own process failed: {answer['error']['message'][:500]}")
        judging.attach(twin)
        send_weights(judging, twin, reference, {name: name for name in reference.weight_leaves})
        for worker in (judging.candidate, twin):
            judging.present(worker, cases[0], reference)
    delivered = 0

    def deliver(index: int) -> None:
        nonlocal delivered
        delivered = index % len(cases)
        judging.buffers["out"].bytes.fill_(0xFF)
        for worker in (judging.candidate, twin):
            assert worker is not None
            judging.present(worker, cases[delivered], reference)

    def check(answer: dict[str, Any]) -> None:
        judging.refuse_error(answer)
        reference.expect(cases[delivered])
        verdict = judging.compare(answer, cases[delivered], reference)
        if not verdict.ok:
            raise Outcome(Status.WRONG, f"In a timed call: {verdict.message}")

    single = reference.mutates
    flush = judging.protocol.flush_cpu_mib if judging.device == "cpu" else judging.protocol.flush_mib
    command = {"op": "time", "flush": flush << 20, "out": reference.out_tree}
    mine, theirs = Side(judging.candidate, command, check), Side(twin, command, judging.refuse_error)
    start = time.perf_counter()
    with device_lock(judging.lock):
        waited = time.perf_counter() - start
        judging.stages.current = "timing"
        result = measure(mine, theirs, deliver, judging.protocol, random.Random(order_seed), single=single)
    judging.stages.add("queue", waited)
    judging.stages.add("timing", result.busy_s)
    clock = "perf_counter" if judging.device == "cpu" else "cuda_event"
    judging.figures = {
        "speedup": result.speedup,
        "speedup_low": result.low,
        "speedup_high": result.high,
        "times": {"candidate": timing(mine.blocks, clock), "eager": timing(theirs.blocks, clock)},
    }
