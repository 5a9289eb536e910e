"""The timing step: the candidate and the reference's twin in like processes, on like inputs, under a lock.

While the twin is timed, the candidate and all it started stand still: nothing of it can use the cores, the inputs or
the memory. The twin's results are never written where the candidate could read them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.checking import send_weights
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.judging import Judging, Outcome
from kernelgym_env.evaluation.locks import device_lock
from kernelgym_env.evaluation.measure import Side, measure
from kernelgym_env.evaluation.outside import DISAGREE, TAMPERED, outside_us, overstated
from kernelgym_env.evaluation.reference import Case, Reference, TaskError
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.statistics import timing
from kernelgym_env.evaluation.workers import Worker, WorkerEnded

__all__ = ["time_both"]

_FEWEST_CHECKS = 3
_CHECKING_SHARE = 0.25


def time_both(judging: Judging, twin: Worker, contents: Contents, reference: Reference, rng: random.Random) -> None:
    """Measure the speedup; fills `judging.figures`.

    Args:
        judging: the evaluation.
        twin: the reference's process, loading or loaded.
        contents: makes the inputs.
        reference: the trusted side.
        rng: draws the order of blocks; seeded from the secret.

    Raises:
        Outcome: if a timed call gives a wrong output or an error.
        TaskError: if the reference takes longer than a stage may.
        RuntimeError: if the reference's process fails, which is no fault of the submission's.
    """
    candidate = judging.candidate
    assert candidate is not None
    with judging.stages.time("start"):
        with _trusted():
            answer = twin.wait(judging.protocol.deadlines.import_s)
            if "error" in answer:
                raise RuntimeError(f"the reference's own process failed: {answer['error']['message'][:500]}")
            judging.attach(twin, ("in", "weights"))
            send_weights(judging, twin, reference, {name: name for name in reference.weight_leaves})
            judging.present(twin, contents.case, reference)
        judging.present(candidate, contents.case, reference)
    flush = judging.protocol.flush_cpu_mib if judging.device == "cpu" else judging.protocol.flush_mib
    command = {"op": "time", "flush": flush << 20}
    inputs = _Inputs(judging, candidate, reference, contents)
    mine = Side(candidate, {**command, "out": reference.out_tree}, inputs.for_candidate)
    theirs = _Twin(twin, {**command, "out": None}, inputs.for_twin(twin), lambda: processes.halted(candidate.pid))
    start = time.perf_counter()
    with device_lock(judging.lock):
        waited = time.perf_counter() - start
        judging.stages.current = "timing"
        each = judging.device == "cpu" and inputs.contents.varied
        result = measure(mine, theirs, judging.protocol, rng, single=reference.mutates, each=each)
        began = time.perf_counter()
        factor = _overstated(judging, mine, inputs.contents, reference) if judging.device == "cpu" else 1.0
        judging.stages.add("timing", time.perf_counter() - began)
    judging.stages.add("queue", waited)
    judging.stages.add("timing", result.busy_s)
    clock = "perf_counter" if judging.device == "cpu" else "cuda_event"
    slower = [[value * factor for value in block] for block in mine.blocks]
    judging.figures = {
        "speedup": result.speedup / factor,
        "speedup_low": result.low / factor,
        "speedup_high": result.high / factor,
        "times": {
            "candidate": timing(slower, clock if factor == 1 else "outside"),
            "eager": timing(theirs.blocks, clock),
        },
    }


def _overstated(judging: Judging, side: Side, contents: Contents, reference: Reference) -> float:
    """Factor by which the candidate's own clock overstates its speed; 1 where both clocks agree.

    Raises:
        Outcome: `INTEGRITY`, if its times cannot be: by much, and twice.
    """
    if reference.mutates:
        return 1.0  # calls without new inputs between them are not what was timed
    reported = timing(side.blocks, "").median_us
    factor = overstated(reported, outside_us(judging, side.worker, contents, reference, reported))
    if factor > DISAGREE:
        factor = min(factor, overstated(reported, outside_us(judging, side.worker, contents, reference, reported)))
    if factor > TAMPERED:
        text = "Calls take longer by the kernel's account than the clock inside of the process says."
        raise Outcome(Status.INTEGRITY, text, finding="D6")
    return factor if factor > DISAGREE else 1.0


@contextmanager
def _trusted() -> Iterator[None]:
    """What goes wrong inside is not booked on the submission."""
    try:
        yield
    except WorkerEnded as ended:
        if ended.kind == "timeout":
            raise TaskError(f"the reference does not finish in time: {ended.detail}") from ended
        raise RuntimeError(f"the reference's own process ended: {ended.detail}") from ended
    except Outcome as outcome:
        raise RuntimeError(f"the reference's own process failed: {outcome.detail[:500]}") from outcome


class _Twin(Side):
    """The reference's side."""

    def time(self, calls: int, seconds: float, *, last: bool = True) -> list[float]:
        with _trusted():
            return super().time(calls, seconds, last=last)


class _Inputs:
    """What each side gets before its calls, and what becomes of the answers."""

    def __init__(self, judging: Judging, candidate: Worker, reference: Reference, contents: Contents) -> None:
        self.judging = judging
        self.candidate = candidate
        self.reference = reference
        self.contents = contents
        self._checks = 0
        self._checking_s = 0.0
        self._began = time.perf_counter()

    def for_candidate(self, last: bool) -> Callable[[dict[str, Any]], None]:
        """New contents; at the end of a block nearly those of the call before, and the answer is compared."""
        look = last and (
            self._checks < _FEWEST_CHECKS or self._checking_s < _CHECKING_SHARE * (time.perf_counter() - self._began)
        )
        case = self.contents.near() if last else self.contents.mixed()
        self.judging.buffers["out"].bytes.fill_(0xFF)
        self.judging.present(self.candidate, case, self.reference)
        return lambda answer: self._compare(answer, case) if look else self.judging.refuse_error(answer)

    def for_twin(self, twin: Worker) -> Callable[[bool], Callable[[dict[str, Any]], None]]:
        """New contents; its answers are not looked at."""

        def deliver(last: bool) -> Callable[[dict[str, Any]], None]:
            self.judging.present(twin, self.contents.mixed(), self.reference)
            return self.judging.refuse_error

        return deliver

    def _compare(self, answer: dict[str, Any], case: Case) -> None:
        start = time.perf_counter()
        self.judging.refuse_error(answer)
        self.reference.expect(case)
        verdict = self.judging.compare(answer, case, self.reference)
        self._checks += 1
        self._checking_s += time.perf_counter() - start
        if not verdict.ok:
            raise Outcome(Status.WRONG, f"In a timed call: {verdict.message}", finding="D8")
