"""The embedded default: judge processes on each device of this machine, started when first needed.

- `LocalPool` -- the pool.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import secrets
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kernelgym_env import devices, settings
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.feedback import explain
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.sandbox.options import SandboxOptions
from kernelgym_env.evaluation.source import check_format
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.judge_process import JudgeFault, JudgeProcess
from kernelgym_env.pools.second_device import settled, wants_another
from kernelgym_env.pools.software import software

__all__ = ["LocalPool"]

_RETRIES = 2
_SLACK_S = 120.0
_log = logging.getLogger(__name__)


@dataclass(order=True)
class _Job:
    priority: int
    order: int
    submission: Submission = field(compare=False)
    future: Future[Evaluation] = field(compare=False)
    device: str = field(compare=False)
    queued: float = field(compare=False, default_factory=time.perf_counter)
    first: Evaluation | None = field(compare=False, default=None)
    """What another device said, which is to be confirmed by one that is not that one."""

    def fits(self, device: str) -> bool:
        """Whether a device may run it."""
        asked = device == self.device or device.startswith(f"{self.device}:")
        return asked and (self.first is None or self.first.device != device)


class LocalPool:
    """Evaluates on the devices of this machine.

    Args:
        threads: CPU threads of each process, 0 for torch's default.
        sandbox: ``best_effort`` uses of the sandbox what this machine offers; with ``require`` an evaluation is a
            `fault` where a guarantee is missing, and no submission runs.
        memory_gib: host memory that a submission may use, in GiB; None for three quarters of what there is.
        cores: CPU cores that the processes of an evaluation share; None for all.
        judges: judges on each device, which build and check side by side and time one at a time. One is enough for a
            loop that waits for each answer. Each takes 1.5 to 2 GiB of a GPU while it does nothing (three contexts;
            half a GiB on a GPU of less than 20 GiB) and a GiB of the host.

    Raises:
        InvalidOptionError: for a number outside its range, and where the system is not Linux.
        UnknownNameError: for an unknown `sandbox`.

    Attributes:
        secret: bytes from which every input seed derives. Fresh for each pool; set it to replay another pool's inputs.
    """

    def __init__(
        self,
        threads: int = 0,
        *,
        sandbox: str = "best_effort",
        memory_gib: float | None = None,
        cores: int | None = None,
        judges: int = 1,
    ) -> None:
        if sys.platform != "linux":
            raise InvalidOptionError(f"Pool 'local' needs Linux, this is {sys.platform}; pool='fake' works everywhere.")
        if threads < 0:
            raise InvalidOptionError(f"threads must be 0 (torch's default) or more, got {threads}.")
        if isinstance(judges, bool) or not isinstance(judges, int) or not 1 <= judges <= settings.MOST_JUDGES:
            raise InvalidOptionError(f"judges must be an integer from 1 to {settings.MOST_JUDGES}, got {judges!r}.")
        self.secret = secrets.token_bytes(32)
        self._per_device = judges
        self._threads = threads
        self._sandbox = SandboxOptions(sandbox, memory_gib, cores)
        self._condition = threading.Condition()
        self._jobs: list[_Job] = []
        self._order = itertools.count()
        self._numbers = itertools.count()
        self._lanes: dict[str, threading.Thread] = {}
        self._judges: dict[str, JudgeProcess] = {}
        self._paused = False
        self._closed = False
        self._counts: Counter[str] = Counter()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def submit(self, submission: Submission, priority: int = 0) -> Future[Evaluation]:
        """Queue a submission; see `Evaluator.submit`."""
        future: Future[Evaluation] = Future()
        device = devices.resolve_device(submission.device)
        start = time.perf_counter()
        if problem := check_format(submission.source):
            # no process is worth starting for this
            future.set_result(_format_evaluation(submission, device, problem, time.perf_counter() - start))
            with self._condition:
                self._counts[Status.FORMAT.value] += 1
            return future
        with self._condition:
            if self._closed:
                raise RuntimeError("This pool is closed; get a new one with kernelgym_env.pools.get('local').")
            heapq.heappush(self._jobs, _Job(priority, next(self._order), submission, future, device))
            for lane in self._lanes_for(device):
                if lane not in self._lanes:
                    thread = threading.Thread(target=self._run, args=(lane,), name=f"kernelgym-{lane}", daemon=True)
                    self._lanes[lane] = thread
                    thread.start()
            self._condition.notify_all()
        return future

    def conditions(self, submission: Submission) -> dict[str, Any]:
        """What else an evaluation depends on: this machine, its devices and compilers, versions, and this pool's
        options. Found without CUDA and without torch.
        """
        device = devices.resolve_device(submission.device)
        names = devices.cuda_device_names()
        index = device.partition(":")[2]
        return {
            "evaluator": "local",
            "device": device,
            "gpus": [] if device == "cpu" else [names[int(index)]] if index else names,
            "cpu": devices.cpu_name(),
            "cpu_count": os.cpu_count(),
            "software": software(),
            "threads": self._threads,
            "sandbox": asdict(self._sandbox),
        }

    def _lanes_for(self, device: str) -> list[str]:
        """Names of the judges that may take a job for a device: the device's, with a number for all but the first."""
        names = [device]
        if device == "cuda":
            names = [f"cuda:{index}" for index in range(len(devices.cuda_device_names()))]
        return [f"{name}/{number}" if number else name for number in range(self._per_device) for name in names]

    def _take(self, lane: str) -> _Job | None:
        """The next job for a lane; None when the pool closes."""
        with self._condition:
            while True:
                if self._closed:
                    return None
                if not self._paused:
                    device = _device_of(lane)
                    fitting = [job for job in self._jobs if job.fits(device)]
                    if fitting:
                        job = min(fitting)
                        self._jobs.remove(job)
                        heapq.heapify(self._jobs)
                        return job
                self._condition.wait()

    def _run(self, lane: str) -> None:
        while (job := self._take(lane)) is not None:
            if job.first is None and not job.future.set_running_or_notify_cancel():
                continue
            waited = time.perf_counter() - job.queued
            try:
                evaluation = self._evaluate(lane, job.submission)
            except BaseException as error:  # a bug in the pool must reach the caller, not hang it
                job.future.set_exception(error)
                continue
            stages = dict(evaluation.stages_s)
            stages["queue"] += waited
            stages["total"] += waited
            evaluation = replace(evaluation, stages_s=stages)
            if job.first is not None:
                evaluation = settled(job.first, evaluation)
            elif self._goes_on(job, evaluation):
                continue
            with self._condition:
                self._counts[evaluation.status.value] += 1
            job.future.set_result(evaluation)

    def _goes_on(self, job: _Job, evaluation: Evaluation) -> bool:
        """Queue a job for another device of the same kind, if its figure asks for one and the caller named none."""
        names = devices.cuda_device_names()
        # of several kinds, the job might wait for one that differs
        if job.device != "cuda" or not wants_another(evaluation) or len(names) < 2 or len(set(names)) > 1:
            return False
        with self._condition:
            if self._closed:
                return False
            heapq.heappush(self._jobs, replace(job, first=evaluation, queued=time.perf_counter()))
            self._condition.notify_all()
        return True

    def _evaluate(self, lane: str, submission: Submission) -> Evaluation:
        """Ask the lane's judge; a fault gets a fresh judge, twice."""
        deadlines = get_protocol(submission.protocol).deadlines
        limit = (
            2 * deadlines.build_s + 2 * deadlines.import_s + deadlines.first_call_s + 40 * deadlines.run_s + _SLACK_S
        )
        fault = ""
        for attempt in range(1 + _RETRIES):
            if self._closed:
                fault = "the pool was closed"
                break
            try:
                judge = self._judge(lane)
                request = {
                    "submission": submission.to_dict(),
                    "secret": self.secret.hex(),
                    "number": next(self._numbers),
                }
                return Evaluation.from_dict(judge.ask(request, limit)["evaluation"])
            except JudgeFault as error:
                fault = str(error)
                with self._condition:
                    self._counts["judge_restarts"] += 1
                    broken = self._judges.pop(lane, None)
                if broken:
                    broken.close()
                if not self._closed:
                    _log.warning("Judge on %s failed (attempt %d of %d): %s", lane, attempt + 1, 1 + _RETRIES, fault)
        return Evaluation(
            task_id=submission.task.id,
            status=Status.FAULT,
            task_hash=submission.task.hash,
            source_hash=submission.source_hash,
            protocol=get_protocol(submission.protocol).name,
            device=_device_of(lane),
            fault=fault[-4000:],
        )

    def _judge(self, lane: str) -> JudgeProcess:
        with self._condition:
            judge = self._judges.get(lane)
        if judge is None:
            environ, device = {}, _device_of(lane)
            if device.startswith("cuda:"):
                index = int(device.partition(":")[2])
                visible = settings.visible_devices()
                environ["CUDA_VISIBLE_DEVICES"] = visible[index] if visible is not None else str(index)
            judge = JudgeProcess(device, self._threads, environ, self._sandbox)
            with self._condition:
                if self._closed:
                    judge.close()
                    raise JudgeFault("the pool was closed")
                self._judges[lane] = judge
            judge.wait_ready()
        return judge

    def warm(self, device: str = "auto") -> None:
        """Start the judges of a device now instead of at the first submission, and wait until they are ready."""
        lanes = self._lanes_for(devices.resolve_device(device))
        with ThreadPoolExecutor(len(lanes)) as threads:
            list(threads.map(self._judge, lanes))

    def pause(self) -> None:
        """Start no further evaluation until `resume`."""
        with self._condition:
            self._paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        with self._condition:
            self._paused = False
            self._condition.notify_all()

    def stats(self) -> dict[str, Any]:
        """Counters: ``waiting``, ``judges`` (process ids by device, with a number behind it for all but the first),
        ``judge_restarts``, ``paused``, and evaluations by status under ``ended``.
        """
        with self._condition:
            counts = dict(self._counts)
            return {
                "waiting": len(self._jobs),
                "paused": self._paused,
                "judges": {lane: judge.pid for lane, judge in self._judges.items()},
                "judge_restarts": counts.pop("judge_restarts", 0),
                "ended": counts,
            }

    def close(self) -> None:
        """End every judge and all below it; waiting submissions are cancelled."""
        with self._condition:
            self._closed = True
            jobs, self._jobs = self._jobs, []
            judges = list(self._judges.values())
            self._judges = {}
            self._condition.notify_all()
        for job in jobs:
            if job.first is not None:
                job.future.set_result(job.first)
            else:
                job.future.cancel()
        for judge in judges:
            judge.close()
        for thread in self._lanes.values():
            if thread is not threading.current_thread():
                thread.join(timeout=10)


def _device_of(lane: str) -> str:
    """The device of a judge by the judge's name."""
    return lane.partition("/")[0]


def _format_evaluation(submission: Submission, device: str, problem: str, seconds: float) -> Evaluation:
    kind = "cpu" if device == "cpu" else "cuda"
    return Evaluation(
        task_id=submission.task.id,
        status=Status.FORMAT,
        task_hash=submission.task.for_device(kind).hash,
        source_hash=submission.source_hash,
        protocol=get_protocol(submission.protocol).name,
        device=device,
        feedback=explain(problem),
        stages_s={"format": seconds, "total": seconds},
        provenance={"pid": os.getpid()},
    )
