"""The judging of one submission, step by step, inside the judge.

`Judging` owns what lives for one evaluation: the candidate's process, the reference's twin process, the shared
buffers, the cases. A step either returns or raises `Outcome` (a verdict on the submission), `TaskError` (on the task)
or `WorkerEnded` (the process died or hung); `session.Session` turns each into an `Evaluation`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelgym_env.evaluation.buffers import ALIGN, Buffer, build, is_description, leaves, skeleton, view
from kernelgym_env.evaluation.building.service import Build, Builder
from kernelgym_env.evaluation.correctness import Verdict, compare_all
from kernelgym_env.evaluation.evidence import Evidence
from kernelgym_env.evaluation.feedback import explain, without_values
from kernelgym_env.evaluation.idle import is_idle
from kernelgym_env.evaluation.protocols import Protocol
from kernelgym_env.evaluation.quiet import Quiet
from kernelgym_env.evaluation.reference import Case, Reference
from kernelgym_env.evaluation.result import Finding, Status
from kernelgym_env.evaluation.scratch import keep_caches, write_text
from kernelgym_env.evaluation.source import ENTRY, may_compile
from kernelgym_env.evaluation.spares import Spares
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.evaluation.workers import Worker, WorkerEnded, Zygote

__all__ = ["Judging", "Outcome", "Stages"]

_FINDING_CHARS = 300
_OTHER_BYTES = 8 << 30
FLUSH_PLACES, FLUSH_STEP = 16, 8 << 20
"""Places at which the memory may begin that is overwritten to empty a GPU's cache, and bytes between them."""


class Outcome(Exception):
    """A verdict that ends the judging early.

    Attributes:
        status: how it ended.
        detail: for the feedback.
        finding: the hack catalogue's id of what was found, ``""`` for an ordinary failure.
    """

    def __init__(self, status: Status, detail: str, *, finding: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.finding = finding

    def findings(self) -> tuple[Finding, ...]:
        """What an evaluation records of it. That others did the work is evidence; a wrong output is only a sign."""
        if not self.finding:
            return ()
        severity = "hard" if self.status in (Status.POLICY, Status.INTEGRITY) else "soft"
        return (Finding(self.finding, severity, explain(without_values(self.detail))[:_FINDING_CHARS]),)


class Stages:
    """Wall seconds by stage, and which one is running. A stage inside another one takes its time out of it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.current = "format"
        self._inner = [0.0]

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """Add the block's wall time to `stage`."""
        outer, self.current = self.current, stage
        self._inner.append(0.0)
        start = time.perf_counter()
        try:
            yield
        except BaseException:
            outer = stage  # an error is told with the stage it came from
            raise
        finally:
            elapsed = time.perf_counter() - start
            self.add(stage, elapsed - self._inner.pop())
            self._inner[-1] += elapsed
            self.current = outer

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


class Judging:
    """One evaluation in progress.

    Args:
        submission: what to judge.
        protocol: its constants.
        zygote: forks the workers.
        device: as workers see it.
        threads: CPU threads of each worker, 0 for torch's default.
        environ: set in each worker.
        stages: where time is booked.
        builder: compiles extensions; None leaves them to torch, in the submission's process.
        spares: workers made ahead of time; None has each made when it is needed.
    """

    def __init__(
        self,
        submission: Submission,
        protocol: Protocol,
        zygote: Zygote,
        *,
        device: str,
        threads: int,
        environ: dict[str, str],
        stages: Stages,
        builder: Builder | None = None,
        spares: Spares | None = None,
    ) -> None:
        self.submission = submission
        self.protocol = protocol
        self.zygote = zygote
        self.device = device
        self.threads = threads
        self.environ = environ
        self.stages = stages
        self.builder = builder
        self.spares = spares
        self.build = Build()
        self.error_ratio = math.nan
        self.figures: dict[str, Any] = {}
        self.laws: list[str] = []
        self.evidence = Evidence(problem="not looked for")
        self.reported: dict[str, Any] = {}
        self.retest: dict[str, Any] = {}
        self.beyond_us: dict[str, float] = {}
        self.neighbours: dict[str, Any] = {}
        self.baseline_problems: dict[str, str] = {}
        self.quiet = Quiet(device)
        self.workers: list[Worker] = []
        self.buffers: dict[str, Buffer] = {}
        self.candidate: Worker | None = None
        self._twin: Worker | None = None
        self.import_stage = "start"
        self._start_s = protocol.deadlines.import_s
        self._shown: dict[int, dict[str, Any]] = {}
        self._writes: dict[Worker, Buffer] = {}

    # building and starting

    def launch(self, weight_seed: int, init: dict[str, Any]) -> Worker:
        """Fork the candidate and have it import and construct; the answer is due from `started`.

        On a GPU a source that may start a native compiler is first imported where no GPU is visible, so that a long
        build holds no device memory; the run stage finds the built extension in the same folder.
        """
        compiles = may_compile(self.submission.source)
        folder = self._prebuild(weight_seed) if compiles and self.device != "cpu" else None
        with self.stages.time("queue"):
            self.quiet.enter()
        if self.spares is not None:
            self.spares.fill()
        # sources that build without load_inline build again here, so the longer deadline holds
        self.import_stage = "build" if compiles else "start"
        self._start_s = self.protocol.deadlines.build_s if compiles else self.protocol.deadlines.import_s
        return self._start(folder, weight_seed, init)

    def relaunch(self, weight_seed: int, init: dict[str, Any]) -> Worker:
        """End the candidate and fork another one from the same source, which finds what the first one compiled."""
        old = self.candidate
        assert old is not None
        old.stop()
        old.close(keep_folder=True)
        keep_caches(old.folder)
        self._shown.clear()
        return self._start(old.folder, weight_seed, init)

    def _start(self, folder: Path | None, weight_seed: int, init: dict[str, Any]) -> Worker:
        self.candidate = worker = self._fork(folder)
        self._serve_builds(worker)
        worker.post(self._load(worker.folder, self.submission.source, ENTRY, weight_seed, init))
        return worker

    def _prebuild(self, weight_seed: int) -> Path:
        with self.stages.time("build"):
            builder = self._fork(None, CUDA_VISIBLE_DEVICES="")
            self.candidate = builder
            self._serve_builds(builder)
            command = self._load(builder.folder, self.submission.source, ENTRY, weight_seed, None)
            answer = builder.ask({**command, "device": "cpu"}, self.protocol.deadlines.build_s)
            builder.serve = None
            self._refuse_failed_builds(answer)
            # any other exception may be for want of a GPU: the run stage decides
            if isinstance(answer.get("error"), dict) and answer["error"].get("compile") is True:
                self._raise_error(answer)
            builder.close(keep_folder=True)
            keep_caches(builder.folder)
        return builder.folder

    def _serve_builds(self, worker: Worker) -> None:
        """Compile for a submission's process while it imports and constructs."""
        if (builder := self.builder) is not None:
            worker.serve = lambda request, seconds: builder.build(request, seconds, self.build)

    def started(self) -> None:
        """Wait until the candidate has imported its source and constructed its model.

        Raises:
            Outcome: if either failed.
        """
        assert self.candidate is not None
        answer = self.candidate.wait(self._start_s, self.give_way)
        self.candidate.serve = None
        self._refuse_failed_builds(answer)
        if "error" in answer:
            self._raise_error(answer)

    def _fork(self, folder: Path | None, **environ: str) -> Worker:
        if self.spares is not None and folder is None and not environ:
            worker = self.spares.take(self.give_way)
        else:
            worker = self.zygote.fork({**self.environ, **environ}, folder=folder)
        self.workers.append(worker)
        return worker

    def _load(
        self, folder: Path, source: str, entry: str, weight_seed: int, init: dict[str, Any] | None
    ) -> dict[str, Any]:
        path = write_text(folder, f"{'submission' if entry == ENTRY else f'reference_{weight_seed:x}'}.py", source)
        for name, text in (self.submission.files or {}).items() if entry == ENTRY else ():
            write_text(folder, name, text)
        return {
            "op": "load",
            "path": str(path),
            "entry": entry,
            "construct": init is not None,
            "init": init,
            "seed": weight_seed,
            "device": self.device,
            "threads": self.threads,
            "train_mode": self.protocol.train_mode,
            "tf32": self.protocol.tf32,
            "way": "",
            "builds": entry == ENTRY and self.builder is not None,
            **flushed(self.protocol),
        }

    def _refuse_failed_builds(self, answer: dict[str, Any]) -> None:
        if answer.get("builds_failed"):
            failed = answer["builds_failed"]
            text = "\n".join(map(str, failed)) if isinstance(failed, list) else str(failed)
            raise Outcome(Status.COMPILE_ERROR, self._discreet(text))

    def _discreet(self, text: str) -> str:
        """What a compiler says is told as it is, while the candidate has seen no inputs that could be in there."""
        return without_values(text) if self._shown else text

    def _raise_error(self, answer: dict[str, Any]) -> None:
        error = answer["error"] if isinstance(answer["error"], dict) else {}
        text = f"{error.get('type')}: {error.get('message')}"
        if error.get("compile") is True:
            raise Outcome(Status.COMPILE_ERROR, f"{self._discreet(text)}\n{error.get('where')}")
        raise Outcome(Status.RUNTIME_ERROR, f"{without_values(text)}\n{error.get('where')}")

    def clock_s(self) -> float:
        """Seconds since some moment, without those in which this evaluation waited for others."""
        return time.perf_counter() - self.stages.seconds.get("queue", 0.0)

    def give_way(self) -> float:
        """Let other judges time on the device if one wants to; all that this evaluation started stands still meanwhile.

        A process may be at work on a command whose time is nobody's measure.

        Returns:
            Seconds that it took.
        """
        if not self.quiet.asked:
            return 0.0
        start = time.monotonic()
        with self.stages.time("queue"), ExitStack() as still:
            for worker in self.workers:
                still.enter_context(worker.still())
            if self.spares is not None:
                still.enter_context(self.spares.still())
            if self.device != "cpu":
                torch.cuda.synchronize(self.device)
            self.quiet.give_way()
        return time.monotonic() - start

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block nobody else uses the device, other judges and what is made for the next evaluation included.

        Raises:
            WorkerEnded: if what keeps the device busy is the candidate's, and does not end in the time of a call.
            TimeoutError: as `Quiet.alone`.
        """
        with (
            self.spares.still() if self.spares is not None else nullcontext(),
            self.quiet.alone(partial(is_idle, self.device), self._wait_for_candidate),
        ):
            yield

    def _wait_for_candidate(self) -> None:
        """Have the candidate wait for what it has started on the device, while others wait for that too.

        A kernel has no deadline of its own once a command is answered. What the candidate says is of no interest.
        """
        if self.candidate is not None and not self.candidate.gone:
            self.candidate.ask({"op": "batch", "calls": 0, "wait": 0}, self.protocol.deadlines.run_s)

    # correctness

    def share(self, cases: list[Case], reference: Reference) -> None:
        """Allocate the buffers both sides see: inputs, outputs at the return and later, parameters.

        On a GPU there is a second set of inputs; the first is exchanged with it, or overwritten from it, on the GPU's
        own stream.
        """
        self.buffers["in"] = Buffer.create(max(case.size for case in cases), self.device)
        if self.device != "cpu" and self.buffers["in"].size <= _OTHER_BYTES:
            self.buffers["other"] = Buffer.create(self.buffers["in"].size, self.device)
        self.buffers["out"] = Buffer.create(reference.out_size, self.device)
        self.buffers["late"] = Buffer.create(reference.out_size, self.device)
        if reference.weight_size:
            self.buffers["weights"] = Buffer.create(reference.weight_size, self.device)

    def drop_buffers(self) -> None:
        """Free all shared memory, which nobody may have mapped then: all processes end."""
        self.stop()
        for buffer in self.buffers.values():
            buffer.close()
        self.buffers.clear()

    def attach(self, worker: Worker, names: tuple[str, ...] = ("in", "other", "out", "late", "weights")) -> None:
        """Map buffers in a worker, of those that there are."""
        for name in names:
            if name in self.buffers:
                self._attach(worker, name)

    def _attach(self, worker: Worker, name: str, known_as: str = "") -> None:
        message, fds = self.buffers[name].share()
        command = {"op": "buffer", "name": known_as or name, **message}
        self.command(worker, command, self.protocol.deadlines.import_s, fds)

    def take_outputs(self, workers: Sequence[Worker], places: int, step: int, *, trusted: bool) -> None:
        """Give workers memory for the outputs of so many calls, each so many bytes after the one before, in place of
        what they had.

        What the reference's own processes write lies where no candidate can read it, and nobody looks at it.
        """
        name, size = "unread" if trusted else "out", places * step
        old = self.buffers.get(name)
        if old is None or not size <= old.size < size + ALIGN:
            self.buffers[name] = Buffer.create(size, self.device)
        new = self.buffers[name]
        try:
            for worker in workers:
                if self._writes.get(worker) is not new:
                    self._attach(worker, name, "out")  # it lets go of the old one, which must not be freed before
                    self._writes[worker] = new
        finally:
            if old is not None and old is not new:
                old.close()

    def make_room(self, worker: Worker, case: Case) -> None:
        """Give a worker larger buffers of inputs if a case needs them: sizes may depend on the seed."""
        for name in ("in", "other"):
            old = self.buffers.get(name)
            if old is None or case.size <= old.size:
                continue
            self.buffers[name] = Buffer.create(case.size, self.device)
            try:
                self._attach(worker, name)  # the worker lets go of the old one, which must not be freed before
            finally:
                old.close()
            self._shown.pop(worker.pid, None)

    def views(self, case: Case, name: str = "in") -> list[Any]:
        """The judge's own alias of what a worker gets as arguments, or of the second set."""
        return build(case.tree, self.buffers[name].tensor)

    def present(self, worker: Worker, case: Case, reference: Reference, *, staged: bool = False) -> None:
        """Write a case's inputs; a worker keeps its argument objects unless their structure changes.

        Args:
            worker: who gets them.
            case: the inputs.
            reference: writes them.
            staged: write them into the second set, from where the worker brings them into its arguments.
        """
        self.announce(worker, case)
        reference.deliver(case, self.views(case, "other" if staged else "in"))
        reference.hand_over()

    def announce(self, worker: Worker, case: Case) -> None:
        """Have a worker make argument objects for the structure of a case, unless it has them."""
        if self._shown.get(worker.pid) != case.tree:
            self.command(worker, {"op": "inputs", "tree": case.tree}, self.protocol.deadlines.import_s)
            self._shown[worker.pid] = case.tree

    def compare(
        self, answer: dict[str, Any], case: Case, reference: Reference, lying: torch.Tensor | None = None
    ) -> Verdict:
        """Hold an answer against a case with expected values.

        Args:
            answer: how the worker describes its output.
            case: what it was given.
            reference: the trusted side.
            lying: the output's bytes; None for those that lie in the output buffer.

        Raises:
            WorkerEnded: if the answer has no known form.
        """
        if "unfit" in answer:
            return Verdict(False, math.inf, f"ModelNew returned {str(answer['unfit'])[:300]}.")
        if not is_description(answer.get("tree")):
            raise WorkerEnded("garbage", "it described its output in no known form")
        wanted, found = leaves(reference.out_tree), leaves(answer["tree"])
        if skeleton(reference.out_tree) != skeleton(answer["tree"]):
            message = f"Expected {_structure(reference.out_tree)}, got {_structure(answer['tree'])}."
            return Verdict(False, math.inf, message)
        plain = [leaf["value"] for _, leaf in found if leaf["t"] == "value"]
        for (path, value), got in zip(case.values, plain, strict=True):
            if not _same_value(value, got):
                return Verdict(False, math.inf, f"{path}: the value differs from the reference's.")
        data = self.buffers["out"].bytes if lying is None else lying
        return compare_all(_laid_out(data, wanted, found), case.expected, self.protocol)

    def twin(self, task_source: str, weight_seed: int, init: dict[str, Any], *, way: str = "") -> Worker:
        """Have a process load the reference, to run in one of `ways`; its answer is due when timing starts.

        With workers made ahead it is the one of the evaluation before, where there is one.

        Raises:
            RuntimeError: if the process is gone; none of a submission's doing.
        """
        if self.spares is not None and not way:
            worker = self.spares.take_twin(self.give_way)
            self.workers.append(worker)
            self._twin = worker
        else:
            worker = self._fork(None)
        try:
            worker.post({**self._load(worker.folder, task_source, "Model", weight_seed, init), "way": way})
        except WorkerEnded as ended:
            raise RuntimeError(f"the reference's own process ended: {ended.detail}") from ended
        return worker

    # plumbing

    def command(
        self,
        worker: Worker,
        message: dict[str, Any],
        seconds: float,
        fds: list[int] | None = None,
        *,
        untimed: bool = False,
    ) -> dict[str, Any]:
        """Have a worker do something.

        Args:
            worker: who does it.
            message: what.
            seconds: deadline.
            fds: file descriptors that go with it.
            untimed: nobody looks at how long it takes, so it may be interrupted while other judges time.

        Raises:
            Outcome: if it answers with an error.
        """
        answer = worker.ask(message, seconds, fds or (), self.give_way if untimed else None)
        self.refuse_error(answer)
        return answer

    def refuse_error(self, answer: dict[str, Any]) -> None:
        self._refuse_failed_builds(answer)
        if "error" in answer:
            self._raise_error(answer)

    def stop(self) -> None:
        """Tell all processes to end, but for the reference's, which the next evaluation gets; `wait_closed` is due."""
        self.zygote.note_ending(self.workers)
        twin, self._twin = self._twin, None
        for worker in self.workers:
            if worker is not twin:
                worker.stop()
        if self.spares is None:
            return
        if twin is not None:
            # where this judge has left, another one may be timing, which emptying a process would disturb
            if self.quiet.here and self.spares.give_back(twin, self.give_way):
                self.workers.remove(twin)
            else:
                twin.stop()
        self.spares.rest()

    def close(self) -> None:
        """Have all processes end, wait until they have, and free the shared memory."""
        try:
            self.stop()
        finally:
            self.wait_closed()

    def wait_closed(self) -> None:
        """Wait until all processes have ended, free the shared memory, and use the device no more."""
        try:
            with ExitStack() as each:
                for buffer in self.buffers.values():
                    each.callback(buffer.close)  # of which nobody has a view any more when it comes to it
                for worker in self.workers:
                    each.callback(worker.close)
        finally:
            self.buffers.clear()
            self.quiet.leave()


def flushed(protocol: Protocol) -> dict[str, int]:
    """Bytes that a worker on a GPU overwrites to empty its cache, and of the room in which their place is drawn."""
    flush = protocol.flush_mib << 20
    return {"flush": flush, "room": flush + FLUSH_PLACES * FLUSH_STEP}


def _laid_out(data: torch.Tensor, wanted: list[Any], found: list[Any]) -> list[torch.Tensor]:
    """The tensors in an output's bytes, laid out as the worker says it left them.

    Raises:
        WorkerEnded: if it claims strides that do not fit.
    """
    tensors = []
    for (_, leaf), (_, told) in zip(wanted, found, strict=True):
        if leaf["t"] != "tensor":
            continue
        stride = told.get("stride")
        if not _is_dense(leaf["shape"], stride):
            raise WorkerEnded("garbage", "it claims strides that do not fit its output")
        # where there is one element, no step is taken, and any number may stand there
        stride = [by if extent > 1 else 1 for extent, by in zip(leaf["shape"], stride, strict=True)]
        tensors.append(view(data, {**leaf, "stride": stride}))
    return tensors


def _is_dense(shape: list[int], stride: Any) -> bool:
    """Whether strides reach each element of the shape exactly once, in whatever order of the dimensions."""
    if not isinstance(stride, list) or len(stride) != len(shape) or not all(type(s) is int and s >= 0 for s in stride):
        return False
    step = 1
    for extent, by in sorted(((n, s) for n, s in zip(shape, stride, strict=True) if n > 1), key=lambda pair: pair[1]):
        if by != step:
            return False
        step *= extent
    return True


def _structure(tree: dict[str, Any], depth: int = 0) -> str:
    """A description in words, e.g. ``tuple(float32[3, 4], int64[3])``."""
    if tree["t"] == "tensor":
        return f"{tree['dtype']}{tree['shape']}"
    if tree["t"] == "value":
        return type(tree["value"]).__name__
    if depth > 3:
        return "…"
    parts = [_structure(item, depth + 1) for item in tree["items"][:8]]
    if tree["t"] == "dict":
        parts = [f"{key!r}: {part}" for key, part in zip(tree["keys"], parts, strict=False)]
    more = ", …" if len(tree["items"]) > 8 else ""
    return f"{tree['t']}({', '.join(parts)}{more})"


def _same_value(wanted: Any, got: Any) -> bool:
    if type(wanted) is not type(got):
        return False
    if isinstance(wanted, float):
        return math.isclose(wanted, got, rel_tol=1e-5) or (math.isnan(wanted) and math.isnan(got))
    return bool(wanted == got)
