"""Running red-team cases through a pool of one's own, one at a time on a machine.

- `Arena` -- the pool, the planted secrets, the probe; `run` takes a case and returns a `Record`.
- `Record` -- a case, what was observed, and in what the judge fell short.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from kernelgym_env import devices
from kernelgym_env.evaluation.locks import device_lock
from kernelgym_env.evaluation.protocols import Deadlines, Protocol, get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.local import LocalPool
from kernelgym_env.redteam.cases import RedTeamCase
from kernelgym_env.redteam.naive import Naive, run_naive
from kernelgym_env.redteam.probe import PROBE_TASK, probe_source
from kernelgym_env.redteam.stopwatch import true_speedup
from kernelgym_env.redteam.verdict import GAINFUL, Outcome, failures
from kernelgym_env.redteam.watching import Canary, Markers, Processes
from kernelgym_env.tasks import Task

__all__ = ["Arena", "Record", "scale_for"]

_GRACE_S = 2.0
_SLOWER = 8.0
_PAUSES_S = (1.0, 3.0, 9.0)
_LOCK = "redteam"
_CPU_DEADLINES = Deadlines(import_s=30, build_s=240, first_call_s=40, run_s=30)
_SUDDEN = (Status.CRASH, Status.TIMEOUT, Status.FAULT)


def scale_for(kind: str) -> int:
    """What ``SCALE`` is rewritten to: work that a GPU does in less than a launch hides every trick with the clock."""
    return 1 if kind == "cpu" else 8


@dataclass(frozen=True)
class Record:
    """The result of one case.

    Attributes:
        case: the case.
        outcome: what was observed.
        failures: in what the judge fell short, see `kernelgym_env.redteam.verdict.failures`.
        naive: what a naive evaluator says, None where it was not asked.
    """

    case: RedTeamCase
    outcome: Outcome
    failures: tuple[str, ...] = ()
    naive: Naive | None = None

    @property
    def ok(self) -> bool:
        """Whether the judge did as the case expects."""
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        case, outcome = self.case, self.outcome
        return {
            "id": case.id,
            "case": case.name,
            "expect": case.expect,
            "class": case.kind,
            "status": outcome.status.value,
            "credited": outcome.credited,
            "speedup": outcome.speedup,
            "speedup_low": outcome.speedup_low,
            "deserved": outcome.deserved,
            "markers": list(outcome.markers),
            "leaks": list(outcome.leaks),
            "processes": outcome.processes,
            "probe": outcome.probe,
            "findings": [finding.to_dict() for finding in outcome.findings],
            "seconds": round(outcome.seconds, 3),
            "ok": self.ok,
            "failures": list(self.failures),
            "feedback": outcome.fault or outcome.feedback,
            "naive": dataclasses.asdict(self.naive) if self.naive else None,
        }


@dataclass
class Arena:
    """A pool in which cases are run.

    Use it as a context manager: secrets are planted in the environment of this process from its start to its end.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:<index>``.
        protocol: how cases are judged. On the CPU its deadlines are shortened, so that a case that hangs costs seconds.
        scale: what ``SCALE`` of a case's task is rewritten to; 0 takes `scale_for`.
        threads: CPU threads of each process, 0 for torch's default.
        naive: whether to run each case through the naive evaluator too.
    """

    device: str = "cpu"
    protocol: str | Protocol = "strict"
    scale: int = 0
    threads: int = 0
    naive: bool = False
    _canary: Canary = field(default_factory=Canary, init=False, repr=False)
    _pool: LocalPool = field(init=False, repr=False)
    _normal_us: float = field(default=math.nan, init=False, repr=False)

    def __post_init__(self) -> None:
        resolved = devices.resolve_device(self.device)
        self.device = "cuda:0" if resolved == "cuda" else resolved
        self.scale = self.scale or scale_for(self.kind)
        protocol = get_protocol(self.protocol)
        self.protocol = protocol.replace(deadlines=_CPU_DEADLINES) if self.kind == "cpu" else protocol

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.device.partition(":")[0]

    def __enter__(self) -> Arena:
        self._canary.set()
        self._pool = LocalPool(threads=self.threads)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()
        self._canary.unset()

    def run(self, case: RedTeamCase) -> Record:
        """Judge one case and look at what it left behind.

        Cases take turns with those of other arenas on this machine, since all leave their markers in the same place.

        Raises:
            RuntimeError: if the judge fails the probe before any case has run.
        """
        # the first probe starts the judge, and says what is normal before a case could have affected anything
        if math.isnan(self._normal_us):
            self._start()
        with device_lock(_LOCK), self._canary.planted():
            outcome = self._observe(case)
        naive = self.ask_naive(case) if self.naive else None
        return Record(case, outcome, tuple(failures(case, outcome)), naive)

    def ask_naive(self, case: RedTeamCase) -> Naive:
        """What the naive evaluator says of a case, and what the case did meanwhile."""
        with device_lock(_LOCK), self._canary.planted():
            markers = Markers()
            naive = run_naive(case, self.kind, scale=self.scale, environ=self._canary.values)
            found = markers.clear()
        leaks = self._canary.search(naive.error + "".join(text for _, text in found))
        return dataclasses.replace(naive, markers=tuple(path for path, _ in found), leaks=tuple(leaks))

    def _start(self) -> None:
        evaluation = self._probe()
        if not evaluation.correct:
            said = evaluation.fault or evaluation.feedback
            raise RuntimeError(
                f"The judge fails a known good kernel before any case has run: {evaluation.status} {said}"
            )
        self._normal_us = evaluation.times["candidate"].median_us
        if math.isnan(self._normal_us):
            self._normal_us = math.inf

    def _observe(self, case: RedTeamCase) -> Outcome:
        markers, running = Markers(), Processes()
        start = time.perf_counter()
        evaluation = self._judge(case.task(self.scale), case.source)
        seconds = time.perf_counter() - start
        left = running.left(self._pool.stats()["judges"].values(), _GRACE_S)
        found = markers.clear()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # what a submission can have had a say in; figures of the judge's own would pass for hidden values
        said = [evaluation.feedback, evaluation.fault, *(finding.message for finding in evaluation.findings)]
        told = "\n".join([*said, *(text for _, text in found)])
        outcome = Outcome(
            evaluation.status,
            evaluation.speedup,
            evaluation.speedup_low,
            evaluation.findings,
            evaluation.feedback,
            evaluation.fault,
            tuple(path for path, _ in found),
            tuple(self._canary.search(told)),
            len(left),
            seconds=seconds,
        )
        if case.expect == "contain" or case.kind == "environment" or left or evaluation.status in _SUDDEN:
            outcome = dataclasses.replace(outcome, probe=self._probe_problem())
        timed = outcome.credited and not math.isnan(outcome.speedup)
        if case.expect == "contain" and case.kind in GAINFUL and timed and case.max_speedup is None:
            outcome = dataclasses.replace(outcome, deserved=self._deserved(case))
        return outcome

    def _deserved(self, case: RedTeamCase) -> float:
        """The speedup of a case's kernel without its trick."""
        if case.honest:
            return self._judge(case.task(self.scale), case.honest).speedup
        markers = Markers()
        try:
            return true_speedup(case, self.kind, scale=self.scale, threads=self.threads)
        finally:
            markers.clear()

    def _judge(self, task: Task, source: str) -> Evaluation:
        submission = Submission(task, source, device=self.device, protocol=self.protocol)
        try:
            return self._pool.submit(submission).result()
        except Exception as error:  # a pool never raises for what a submission does, so this is the judge's failure too
            return Evaluation(task.id, Status.FAULT, fault=f"{type(error).__name__}: {error}")

    def _probe(self) -> Evaluation:
        protocol = get_protocol(self.protocol).replace(min_blocks=3, max_blocks=6, budget_s=0.2)
        submission = Submission(PROBE_TASK, probe_source(self.kind), device=self.device, protocol=protocol)
        return self._pool.submit(submission).result()

    def _probe_problem(self) -> str:
        """What is wrong with the evaluation of a known good kernel; one that is slow once may be so by chance."""
        problem = ""
        for pause in (0.0, *_PAUSES_S):
            time.sleep(pause)
            evaluation = self._probe()
            if not evaluation.correct:
                return f"a known good kernel was judged {evaluation.status}"
            took = evaluation.times["candidate"].median_us
            if not took > _SLOWER * self._normal_us:
                return ""
            problem = f"a known good kernel took {took / self._normal_us:.1f} times as long as before"
        return problem
