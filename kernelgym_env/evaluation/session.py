"""What a judge keeps between submissions, and how one becomes an `Evaluation`.

Every outcome of a submission is an `Evaluation`; only infrastructure raises.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import platform
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from kernelgym_env import settings
from kernelgym_env._version import __version__
from kernelgym_env.devices import cpu_name
from kernelgym_env.evaluation.baselines import BaselineCache
from kernelgym_env.evaluation.buffers import give_back
from kernelgym_env.evaluation.building.service import Builder
from kernelgym_env.evaluation.checking import (
    check,
    check_fresh,
    check_further,
    check_laws,
    check_near,
    match_weights,
    renew_weights,
    send_weights,
)
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.feedback import explain, without_values
from kernelgym_env.evaluation.judging import Judging, Outcome, Stages
from kernelgym_env.evaluation.notes import Notes, Probed
from kernelgym_env.evaluation.ownership import check_attribution, check_denied, check_launches
from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.evaluation.quiet import Quiet
from kernelgym_env.evaluation.reference import Reference, TaskError, derive_seed
from kernelgym_env.evaluation.result import Evaluation, Finding, Status, Timing
from kernelgym_env.evaluation.retest import Timed, time_submission
from kernelgym_env.evaluation.roofline import Work, count_work, floor_us, is_loose, machine
from kernelgym_env.evaluation.room import Room, largest_bytes, needed_bytes
from kernelgym_env.evaluation.sandbox.options import SandboxOptions
from kernelgym_env.evaluation.sandbox.trial import settle
from kernelgym_env.evaluation.sandbox.warden import SandboxError
from kernelgym_env.evaluation.shapes import check_shape
from kernelgym_env.evaluation.shortage import is_short
from kernelgym_env.evaluation.source import check_format, detect_backend
from kernelgym_env.evaluation.spares import Spares, stock
from kernelgym_env.evaluation.speed import measure_way
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.evaluation.workers import Worker, WorkerEnded, Zygote
from kernelgym_env.tasks.model import Task

__all__ = ["Session"]

_MAY_BE_SHORT = (Status.RUNTIME_ERROR, Status.TASK_INVALID)
_LARGE_BYTES = 4 << 30
_MANY_CORES = (os.cpu_count() or 1) >= 4


class Session:
    """The judge's state on one device.

    Args:
        device: ``"cpu"`` or ``"cuda:0"`` as seen by this process.
        name: how the device is called outside, e.g. ``"cuda:3"``.
        threads: CPU threads of each worker and of the judge, 0 for torch's default.
        sandbox: how workers are confined.
    """

    def __init__(self, device: str, name: str, threads: int = 0, sandbox: SandboxOptions | None = None) -> None:
        self.device = device
        self.name = name
        self.threads = threads
        self.kind = "cpu" if device == "cpu" else "cuda"
        interpreter = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""} if self.kind == "cpu" else {}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.sandbox = sandbox or SandboxOptions()
        environ = interpreter or ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
        self.zygote = Zygote(self.kind, environ, self.sandbox)
        if threads:
            torch.set_num_threads(threads)
        self.builder = Builder(self.zygote) if settings.fast_builds() else None
        self.hardware, self._environ = self._look()
        self.spares = Spares(self.zygote, device, self._environ, stock(device))
        self._closer = ThreadPoolExecutor(1, thread_name_prefix="closer")
        self._closing: Future[None] | None = None
        self.room = None if self.kind == "cpu" else Room(device, torch.cuda.get_device_properties(device).total_memory)

    def _look(self) -> tuple[dict[str, str], dict[str, str]]:
        """Describe the device; what workers must know of it."""
        if self.kind == "cpu":
            return {"name": cpu_name(), "threads": str(torch.get_num_threads())}, {}
        properties = torch.cuda.get_device_properties(self.device)
        capability = f"{properties.major}.{properties.minor}"
        hardware = {
            "name": properties.name,
            "capability": capability,
            "memory_gib": f"{properties.total_memory / 2**30:.0f}",
            "cuda": torch.version.cuda or "",
        }
        return hardware, {"TORCH_CUDA_ARCH_LIST": capability}

    @functools.cached_property
    def notes(self) -> Notes:
        """What is known of tasks; of versions only a fork server that is up knows."""
        return Notes(self.hardware, self.zygote.versions)

    def prepare(self) -> None:
        """Wait for the fork server, and find out what CUDA needs of the sandbox.

        Raises:
            ZygoteError: if the fork server does not come up.
        """
        # imports what counts work, in the time that the fork server takes
        count_work(torch.nn.functional.silu, [torch.ones(1, device=self.device)])
        self.zygote.wait_ready()
        if self.kind == "cuda":
            settle(self.zygote, self.device)

    def close(self) -> None:
        """End the fork server and all its jobs."""
        self._closer.shutdown()
        self.spares.close()
        self.zygote.close()

    def evaluate(self, submission: Submission, secret: bytes, number: int) -> Evaluation:
        """Judge one submission; once more, while no other judge uses the device, if its memory did not suffice.

        Args:
            submission: what to judge; its task is sized for this device here.
            secret: the pool's secret, from which every seed derives.
            number: the evaluation's number in the pool.

        Raises:
            ZygoteError: if the fork server is gone.
            torch.OutOfMemoryError: if the device has no room for the task.
            TimeoutError: if other judges had the device's memory for an hour.
        """
        self.notes.forget()
        if self.room is None:
            return self._evaluate(submission, secret, number)
        needed = needed_bytes(self._largest_bytes(submission))
        with self.room.hold(needed):
            try:
                evaluation = self._evaluate(submission, secret, number)
            except RuntimeError as error:  # what torch and the driver raise for want of memory
                if not is_short(str(error)):
                    raise
            else:
                if evaluation.status not in _MAY_BE_SHORT or not is_short(evaluation.feedback):
                    if needed > _LARGE_BYTES:
                        self._wait_closed()  # others count on the memory
                    return evaluation
        with self.room.alone():
            self._wait_closed()
            with Quiet(self.device).alone():
                pass  # what other judges had running has ended
            taken = self.room.taken()
            self.notes.forget()
            evaluation = self._evaluate(submission, secret, -1 - number)  # on other inputs than before
        if taken and evaluation.status in _MAY_BE_SHORT and is_short(evaluation.feedback):
            return dataclasses.replace(evaluation, status=Status.FAULT, feedback="", fault=taken)
        why = "the device's memory did not suffice beside other judges"
        return dataclasses.replace(evaluation, provenance={**evaluation.provenance, "judged_alone": why})

    def _largest_bytes(self, submission: Submission) -> int:
        """`largest_bytes` of the task as it is judged here."""
        task = submission.task.for_device(self.kind)
        notes = self.notes.of(task, get_protocol(submission.protocol))
        if notes.largest_bytes is None:
            notes.largest_bytes = largest_bytes(task)
        return notes.largest_bytes

    def _wait_closed(self) -> None:
        """Wait until the processes of the evaluation before have ended."""
        if self._closing is not None:
            self._closing.result()

    def _evaluate(self, submission: Submission, secret: bytes, number: int) -> Evaluation:
        """Judge one submission, with what memory there is; raises what `evaluate` does."""
        start = time.perf_counter()
        stages = Stages()
        protocol = get_protocol(submission.protocol)
        found = detect_backend(submission.source)
        backend = submission.backend if submission.backend != "auto" else found
        interpreted = found == "triton" and self.kind == "cpu"  # whatever it is called
        judging = Judging(
            submission,
            protocol,
            self.zygote,
            device=self.device,
            threads=self.threads,
            environ=self._environ,
            stages=stages,
            builder=self.builder,
            spares=self.spares,
        )
        status, detail, whole = Status.CORRECT, "", False
        findings: tuple[Finding, ...] = ()
        try:
            with stages.time("format"):
                problem = check_format(submission.source)
            if problem:
                raise Outcome(Status.FORMAT, problem)
            detail = self._judge(judging, secret, number, measured=not interpreted)
            whole = True
        except Outcome as outcome:
            status, detail = outcome.status, outcome.detail
            findings = outcome.findings()
        except TaskError as error:
            status, detail = Status.TASK_INVALID, str(error)
        except (SandboxError, TimeoutError) as error:
            # another judge on this machine would refuse it too, so this is no case for another try
            status, detail = Status.FAULT, str(error)
        except WorkerEnded as ended:
            status = ended.status
            detail = f"In the {stages.current} stage: {ended.detail}."
        finally:
            if whole:
                self._close_later(judging)
            else:
                judging.close()  # all that it has printed is needed, or all of the device's memory
            give_back(self.device)  # the next task's shared buffers do not come from torch's allocator
        if not is_short(detail):  # what was found out for want of memory is not so the next time
            self.notes.keep()
        printed = judging.candidate.output if judging.candidate and status is not Status.CORRECT else ""
        if status is not Status.COMPILE_ERROR:  # where a compiler speaks, numbers are the source's own
            printed = without_values(printed)
        stages.add("total", time.perf_counter() - start)
        figures = dict(judging.figures) if status is Status.CORRECT else {}
        unresolved = figures.pop("unresolved", False)
        return Evaluation(
            task_id=submission.task.id,
            status=status,
            task_hash=submission.task.for_device(self.kind).hash,
            source_hash=submission.source_hash,
            protocol=protocol.name,
            device=self.name,
            error_ratio=judging.error_ratio,
            coverage=judging.evidence.coverage,
            own_launches=judging.evidence.own_launches,
            findings=findings,
            feedback="" if status is Status.FAULT else explain(detail, output=printed),
            fault=detail if status is Status.FAULT else "",
            stages_s=stages.seconds,
            provenance={
                "package": __version__,
                "platform": platform.platform(),
                "hardware": self.hardware,
                "versions": self.zygote.versions,
                "protocol": protocol.to_dict(),
                "input_laws": judging.laws,
                "library_ops": submission.library_ops or protocol.library_ops,
                "evidence": judging.evidence.to_dict(),
                "reported": judging.reported,
                "retest": judging.retest,
                "beyond_us": judging.beyond_us,
                "unresolved": unresolved,
                "neighbours": judging.neighbours,
                "baseline_problems": judging.baseline_problems,
                "backend": backend,
                "builds": judging.build.to_dict() if self.builder else {},
                "sandbox": self.sandbox.mode,
                "isolation": judging.candidate.isolation if judging.candidate else {},
            },
            **figures,
        )

    def _close_later(self, judging: Judging) -> None:
        """Have its processes end behind the next evaluation's back, and those of the one before have ended by now."""
        judging.stop()
        if self.kind != "cpu":  # to end takes a CPU's time, but none of a GPU's
            judging.quiet.leave()
        self._wait_closed()
        self._closing = self._closer.submit(judging.wait_closed)

    def _judge(self, judging: Judging, secret: bytes, number: int, *, measured: bool) -> str:
        """All steps; returns a note for the feedback of a correct submission."""
        protocol, stages = judging.protocol, judging.stages
        task = judging.submission.task.for_device(self.kind)
        weights, order, probe, first, second, renewed, renewed_again, laws = (
            derive_seed(secret, task.hash, number, part)
            for part in ("weights", "order", "probe", "a", "b", "renewed", "renewed again", "laws")
        )
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = protocol.tf32
        with stages.time("start"):
            reference = Reference(task, self.device, weights, protocol)
            candidate = judging.launch(weights, reference.init_tree)
            # while the candidate imports (or compiles) and constructs, the judge prepares its own side, and where there
            # are cores for it the reference's twin does too
            twin = judging.twin(task.source, weights, reference.init_tree) if measured and _MANY_CORES else None
            reference.construct()
            judging.give_way()
            work = self._probe(reference, probe).work
            judging.give_way()
            cases = []
            for seed in (first, second) if protocol.trials > 1 else (first,):
                cases.append(reference.case(seed))
                judging.give_way()
            judging.share(cases, reference)
        with stages.time(judging.import_stage):
            judging.started()
        judging.give_way()
        with stages.time("start"):
            if measured and twin is None:
                twin = judging.twin(task.source, weights, reference.init_tree)
            self.spares.fill()  # for the next submission
            judging.attach(candidate)
            matched = match_weights(judging, candidate, reference)
            if renew_weights(reference, matched, renewed):
                send_weights(judging, candidate, reference, matched)
        check(judging, cases, reference)
        further = [derive_seed(secret, task.hash, number, "set", index) for index in range(2, protocol.input_sets)]
        check_further(judging, further, reference)
        if sum(case.size for case in cases) > _LARGE_BYTES:
            del cases[1:]  # expected values in float64 of one set of inputs are enough to hold while both sides run
        with stages.time("correctness"):
            if renew_weights(reference, matched, renewed_again):
                send_weights(judging, candidate, reference, matched)
                for case in cases:
                    case.forget()
        check_fresh(judging, cases[0], reference)
        rng = random.Random(order)
        contents = Contents(cases, rng)
        judging.give_way()
        with stages.time("correctness"), candidate.still():  # which could keep the machine busy meanwhile
            self._settle(contents, reference)
        check_near(judging, contents, reference, rng, more=twin is None)
        check_laws(judging, cases[0], reference, self.notes.of(task, protocol).book, laws)
        check_denied(judging, cases[0], reference)
        check_attribution(judging, cases[0], reference)
        if twin is not None:
            floor = self._floor_us(work, protocol)
            self._measure(judging, twin, Timed(reference, contents, rng, weights, matched, floor))
        self._check_shapes(judging, task, secret, number)
        return "" if measured else "Triton ran in its interpreter on the CPU: checked for correctness, not timed."

    def _measure(self, judging: Judging, twin: Worker, timed: Timed) -> None:
        """Everything about speed, and whose kernels ran."""
        floor = timed.floor_us
        twin = time_submission(judging, twin, timed)
        if not math.isnan(floor):
            judging.figures["times"]["floor"] = Timing(floor, floor, floor, 0, "data sheet")
        if self.kind == "cuda":
            # after timing, since what looks at launches may make later ones slower
            judging.evidence = check_launches(judging, timed.contents.mixed(), timed.reference)
        judging.figures |= self._baselines(judging, twin, timed)

    def _check_shapes(self, judging: Judging, task: Task, secret: bytes, number: int) -> None:
        """Judge at further sizes, secretly chosen from those that the task declares."""
        declared = task.at_shapes()
        rng = random.Random(derive_seed(secret, task.hash, number, "shapes"))
        for other in rng.sample(declared, min(judging.protocol.shape_trials, len(declared))):
            weights, probe, first, second = (
                derive_seed(secret, other.hash, number, part) for part in ("weights", "probe", "a", "b")
            )
            reference = Reference(other, self.device, weights, judging.protocol)
            check_shape(judging, reference, (first, second), partial(self._probe, seed=probe))

    def _floor_us(self, work: Work | None, protocol: Protocol) -> float:
        """The floor of a reference on this device, NaN where it is unknown."""
        if work is None:
            return math.nan
        return floor_us(work, machine(self.hardware["name"]), loose=is_loose(protocol))

    def _baselines(self, judging: Judging, twin: Worker, timed: Timed) -> dict[str, Any]:
        """Figures over the protocol's further baselines, from disk or measured now."""
        reference, protocol, figures = timed.reference, judging.protocol, judging.figures
        if not protocol.baselines:
            return {}
        key = {
            "task": reference.task.hash,
            "device": self.hardware,
            "threads": self.threads,
            "versions": self.zygote.versions,
            "protocol": protocol.constants(),
        }
        cache = BaselineCache()
        known = cache.load(key)
        eager_us = figures["times"]["eager"].median_us
        times = dict(figures["times"])
        found: dict[str, Any] = {"times": times}
        for name in protocol.baselines:
            if name not in known or known[name].drifted(eager_us):
                worker = judging.twin(reference.task.source, timed.weight_seed, reference.init_tree, way=name)
                measured = measure_way(judging, worker, twin, timed.contents, reference, timed.rng)
                measured = dataclasses.replace(measured, eager_us=eager_us)  # drift is told from like measurements
                worker.stop()
                if name not in known or not measured.problem:  # what worked before fails for a passing reason
                    known[name] = measured
                if measured.lasting:
                    cache.save(key, known)
            times[name] = known[name].times
            found[f"speedup_{name}"] = known[name].speedup(figures["speedup"])
            if known[name].problem:
                judging.baseline_problems[name] = known[name].problem
        return found

    def _probe(self, reference: Reference, seed: int) -> Probed:
        """Look at a reference, if that was not done yet."""
        # mode and precision change what the reference gives, the tolerance whether a null answer passes
        notes = self.notes.of(reference.task, reference.protocol)
        if notes.probed is None:
            reference.probe(seed)
            work = _work(reference, seed)
            notes.probed = Probed(reference.out_tree, reference.out_size, reference.mutates, work)
        notes.probed.tell(reference)
        return notes.probed

    def _settle(self, contents: Contents, reference: Reference) -> None:
        """Mix inputs as far as the task bears it."""
        notes = self.notes.of(reference.task, reference.protocol)
        if notes.mixing is None:
            notes.mixing = contents.settle(reference)
        else:
            contents.limit(notes.mixing)


def _work(reference: Reference, seed: int) -> Work | None:
    """The work of a reference, None where it cannot be counted, e.g. as it has operators of its own.

    Raises:
        RuntimeError: if the device's memory does not suffice.
    """
    try:
        return count_work(reference.model, reference.draw(seed))
    except Exception as error:  # what raises is the reference's code under modes that it may not bear
        if is_short(str(error)):
            raise
        return None
