"""The candidate's side: runs one source on the judge's inputs and copies what it returns into the judge's memory.

It runs in a process forked for this one source, beside code that nobody trusts. So it decides nothing: it executes
commands, measures what it is told to, and reports; the judge believes only what lies in its own buffers and what its
own clock bounds. The trusted reference runs through this same file, in a like process.

Commands (JSON, see `wire`): ``warm``, ``load``, ``unload``, ``tensors``, ``weights``, ``buffer``, ``inputs``, ``call``,
``denied``, ``found``, ``repeat``, ``batch``, ``last``, ``trace``, ``time``.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import importlib.util
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from kernelgym_env.evaluation import wire
from kernelgym_env.evaluation.buffers import (
    Buffer,
    TreeError,
    build,
    build_plain,
    describe,
    give_back,
    leaves,
    ordered_keys,
    skeleton,
    span,
)
from kernelgym_env.evaluation.building.client import Client
from kernelgym_env.evaluation.cupti import CuptiError, Tracer
from kernelgym_env.evaluation.delivery import Courier
from kernelgym_env.evaluation.denied import Denied, watch_captures
from kernelgym_env.evaluation.device_clock import DeviceClock, wait_cycles
from kernelgym_env.evaluation.operators import Recorded
from kernelgym_env.evaluation.torch_settings import Settings
from kernelgym_env.evaluation.ways import WAYS
from kernelgym_env.evaluation.weights import describe_tensors, tensors_of

__all__ = ["serve"]

_MODULE = "kernel_submission"
_MAX_TEXT = 16_384
_LATE_S = 0.01
_LATE_CYCLES = 4_000_000  # some milliseconds
_LARGE_BYTES = 1 << 30
_MOST_KERNELS = 64
_WAKING_BYTES = 1 << 18  # as much as takes all of torch's threads: from sleep they need longer than a short call takes
# taken before a submission's code can replace it
_synchronize = torch.cuda.synchronize
_copy = torch.Tensor.copy_
_empty = torch.empty
_address = torch.Tensor.data_ptr
_receive = socket.socket.recv
_fill = torch.Tensor.fill_
_FOLDER = ""
_COMPILERS = ("g++", "gcc", "cc", "c++", "clang", "clang++", "nvcc", "ninja", "hipcc", "ptxas")
_COMPILE_ERRORS = ("CompilationError", "CompileException", "NVRTCError", "CompileTimeAssertionFailure")


def _clip(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]}\n… [{len(text) - 2 * half} characters cut] …\n{text[-half:]}"


def _text(value: object) -> str:
    """`str(value)` of something whose `__str__` may raise, lie or return megabytes."""
    try:
        text = str.__str__(str(value))
    except BaseException:  # the object is the submission's own: any failure is its own
        return f"<{type(value).__name__} whose text could not be made>"
    return _clip(text.encode("utf-8", "backslashreplace").decode())


def _is_compile_error(error: BaseException) -> bool:
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & set(_COMPILE_ERRORS):
        return True
    if "CalledProcessError" in names:
        command = getattr(error, "cmd", "")
        first = command[0] if isinstance(command, (list, tuple)) and command else str(command).split(" ")[0]
        return os.path.basename(str(first)).split("-")[0] in _COMPILERS
    return isinstance(error, RuntimeError) and "Error building extension" in _text(error)


def _name_of(error: BaseException) -> str:
    """The class's name, whatever its metaclass says."""
    return type.__getattribute__(type(error), "__name__")[:200]


def _where(error: BaseException) -> str:
    """The submission's own frames of a traceback, innermost last; the last few of any where it has none."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    own = [frame for frame in frames if _FOLDER and frame.filename.startswith(_FOLDER)]
    return "".join(
        f'  File "{os.path.basename(frame.filename)}", line {frame.lineno}, in {frame.name}\n'
        + (f"    {frame.line}\n" if frame.line else "")
        for frame in (own[-8:] or [frame for frame in frames if frame.filename != __file__][-3:])
    )


def _said(error: BaseException) -> str:
    """An exception's text with what a compiler said and with the exceptions behind it."""
    message = _text(error)
    for name in ("stdout", "stderr", "output"):
        extra = getattr(error, name, None)
        if isinstance(extra, bytes):
            extra = extra.decode("utf-8", "replace")
        if isinstance(extra, str) and extra:
            message += f"\n{_clip(extra)}"
    members = getattr(error, "exceptions", None)
    if isinstance(members, tuple):
        for member in members[:4]:
            if isinstance(member, BaseException):
                message += f"\n- {_name_of(member)}: {_text(member)}"
    behind, seen = error.__cause__ or (None if error.__suppress_context__ else error.__context__), 0
    while isinstance(behind, BaseException) and seen < 3:
        message += f"\ncaused by {_name_of(behind)}: {_text(behind)}"
        behind, seen = behind.__cause__ or (None if behind.__suppress_context__ else behind.__context__), seen + 1
    return _clip(message)


def _describe_error(error: BaseException) -> dict[str, Any]:
    """What the judge is told of an exception; never raises, whatever the exception's class does."""
    described: dict[str, Any] = {"type": "Exception", "message": "", "where": "", "compile": False}
    for key, make in (("type", _name_of), ("message", _said), ("where", _where), ("compile", _is_compile_error)):
        try:
            value = make(error)
            described[key] = value if isinstance(value, bool) else _clip(_plain(value))
        except BaseException:  # the exception is of the submission's making, and so is any failure here
            described["message"] = described["message"] or f"<{described['type']} whose text could not be made>"
    return described


def _plain(text: str) -> str:
    return str.__str__(text).encode("utf-8", "backslashreplace").decode()


class _BuildWatch:
    """Notes extension builds that fail, also where the submission swallows the exception.

    Attributes:
        failures: the texts of exceptions.
        client: has the judge compile, while it is open.
    """

    def __init__(self) -> None:
        self.failures: list[str] = []
        from torch.utils import cpp_extension

        self.client = Client(cpp_extension._run_ninja_build)
        original = self.client.run

        def watched(*arguments: Any, **options: Any) -> Any:
            try:
                return original(*arguments, **options)
            except BaseException as error:
                self.failures.append(_text(error))
                raise

        cpp_extension._run_ninja_build = watched


class _Inside:
    """Whether the calling code is inside what is let through, told at each entry and exit; shown in a shared byte."""

    def __init__(self, shown: ctypes.c_uint8 | None = None) -> None:
        self.depth = self.entered = 0
        self._shown = ctypes.c_uint8() if shown is None else shown

    def __call__(self, enters: bool) -> None:
        self.depth += 1 if enters else -1
        self.entered += enters
        self._shown.value = self.depth > 0


class _Harness:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.reader = wire.Reader(sock, limit=64 * wire.MAX_FRAME, fds=True)
        self.watch = _BuildWatch()
        self.buffers: dict[str, Buffer] = {}
        self.model: Any = None
        self.arguments: list[Any] = []
        self.device = "cpu"
        self.flush: torch.Tensor | None = None
        self.waking = torch.empty(_WAKING_BYTES, dtype=torch.uint8)
        self.settings = Settings()
        self.captured: list[str] = []
        self.last: Any = None
        self.clock: DeviceClock | None = None
        self.told = False
        self.tracer: Tracer | None = None
        self.no_tracer = "there is no GPU"
        self.refusal: tuple[Denied, Recorded, ExitStack]

    def run(self) -> None:
        with watch_captures(self.captured.append):
            self._serve()

    def _serve(self) -> None:
        while True:
            command = wire.recv(self.reader)
            try:
                reply = getattr(self, f"do_{command['op']}")(command)
            except BaseException as error:  # SystemExit and KeyboardInterrupt are the submission's too
                reply = {"error": _describe_error(error)}
            reply["builds_failed"] = self.watch.failures[:4]
            reply["nonce"] = command["nonce"]
            wire.send(self.sock, reply)

    def do_load(self, command: dict[str, Any]) -> dict[str, Any]:
        """Import the source; construct its model where `construct` is set.

        Meanwhile the judge compiles what torch would, where `builds` is set.
        """
        if not command["builds"]:
            return self._load(command)

        def ask(request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
            wire.send(self.sock, {"build": request, "nonce": command["nonce"]})
            answer = wire.recv(self.reader)["built"]
            fds, self.reader.fds = self.reader.fds, []
            return answer, fds

        self.watch.client.open(ask)
        try:
            return self._load(command)
        finally:
            self.watch.client.close()

    def do_warm(self, command: dict[str, Any]) -> dict[str, Any]:
        """Get ready for a device, before there is anything of a submission to read."""
        self._open(command["device"])
        return {"ok": True}

    def _open(self, device: str) -> None:
        if self.device == device != "cpu":
            return
        self.device = device
        self.courier = Courier(device)
        if device != "cpu":
            torch.empty(1, device=device)  # makes the context
            self.clock = DeviceClock(torch.device(device).index or 0)
            self._attach_tracer()

    def _load(self, command: dict[str, Any]) -> dict[str, Any]:
        self._open(command["device"])
        if self.clock is not None and not self.told:
            self.told = True
            # told before anything of the submission is read
            launch_us = self.clock.launch_us(self._flush({**command, "flush_at": 0}))
            wire.send(self.sock, {"launch_us": launch_us, "nonce": command["nonce"]})
        if command["threads"]:
            torch.set_num_threads(command["threads"])
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = command["tf32"]
        self._seed(command["seed"])
        global _FOLDER
        _FOLDER = os.path.dirname(command["path"])
        spec = importlib.util.spec_from_file_location(_MODULE, command["path"])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[_MODULE] = module
        spec.loader.exec_module(module)
        entry = getattr(module, command["entry"], None)
        if entry is None:
            raise AttributeError(f"the source defines no {command['entry']}")
        if not command["construct"]:
            return {"ok": True}
        self._seed(command["seed"])
        with torch.no_grad():
            model = entry(*build_plain(command["init"]))
            self.model = model.to(self.device) if isinstance(model, torch.nn.Module) else model
        if command["train_mode"] is not None:
            self.model.train(command["train_mode"])
        if command["way"]:
            self.model = WAYS[command["way"]](self.model)
        self._sync()
        return {"ok": True}

    def do_unload(self, command: dict[str, Any]) -> dict[str, Any]:
        """Forget all that was loaded, and what it set for the whole process: for trusted sources, one after another.

        It is ``ok`` if the process can serve another one: if this one loaded, and the device has no error.
        """
        sound = self.model is not None and not self.watch.failures
        self.model = self.last = self.flush = None
        self.arguments = []
        sys.modules.pop(_MODULE, None)
        gc.collect()  # of what may refer to each other, tensors in shared memory among it
        for buffer in self.buffers.values():
            buffer.close()
        self.buffers.clear()
        self.settings.restore()
        self._sync()
        if self.device != "cpu":
            torch.cuda.empty_cache()  # nobody counts with it while the process waits
        return {"ok": sound}

    def _attach_tracer(self) -> None:
        try:
            self.tracer = Tracer()
        except (CuptiError, OSError, AttributeError) as error:
            self.no_tracer = str(error)

    def do_buffer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Map a buffer of the judge under a name; the previous one of that name is dropped."""
        if old := self.buffers.pop(command["name"], None):
            if command["name"] == "in":
                self.arguments = []
            old.close()
            give_back(self.device)
        fd = self.reader.fds.pop(0) if command["device"] == "cpu" else -1
        self.buffers[command["name"]] = Buffer.attach(
            command["size"], command["device"], fd=fd, handle=command["handle"]
        )
        return {"ok": True}

    def do_inputs(self, command: dict[str, Any]) -> dict[str, Any]:
        """Make the argument objects over the input buffer; later calls see the same objects rewritten."""
        self.arguments = build(command["tree"], self.buffers["in"].tensor)
        return {"ok": True}

    def do_tensors(self, command: dict[str, Any]) -> dict[str, Any]:
        """Tell what parameters the model has."""
        return {"tensors": describe_tensors(self.model)}

    def do_weights(self, command: dict[str, Any]) -> dict[str, Any]:
        """Overwrite parameters in place with what lies in the buffer."""
        tensors = tensors_of(self.model)
        with torch.no_grad():
            for name, leaf in command["leaves"].items():
                _copy(tensors[name], self.buffers["weights"].tensor(leaf).reshape(tensors[name].shape))
        self._sync()
        return {"ok": True}

    def do_call(self, command: dict[str, Any]) -> dict[str, Any]:
        """One call; its output goes to the output buffers if it has the expected structure.

        It is copied twice: at the return, on the stream of the call, and again once the whole device is idle. Work that
        the call left behind on another stream or thread shows as a difference. On a GPU the inputs come late: the
        stream waits, and then writes them, when the call has already begun. Work that is not ordered after what was on
        the stream reads the inputs of the call before.
        """
        arguments = self.arguments
        if command["fresh"]:
            arguments = build(command["fresh"], self._taken)
        self._poison(command["out"])
        if command["staged"]:
            assert self.clock is not None
            wait_cycles(_LATE_CYCLES)
            target, source = self._sets()
            self.clock.copy(target, source, command["staged"])
        with torch.no_grad():
            result = self.model(*arguments)
        answer = self._deliver(result, command["out"], "out")
        if "unfit" not in answer:
            self._sync()
            if self.device == "cpu":
                time.sleep(_LATE_S)
            self._deliver(result, command["out"], "late")
        del result, arguments
        give_back(self.device)
        return answer

    def _taken(self, leaf: dict[str, Any]) -> torch.Tensor:
        """A copy of an input at an address of its own; zeros stay behind for whoever reads the old place."""
        view = self.buffers["in"].tensor(leaf)
        line = view.as_strided((span(leaf["shape"], leaf["stride"]),), (1,))
        taken = line.clone().as_strided(leaf["shape"], leaf["stride"]) if line.numel() else view.clone()
        line.zero_()
        return taken

    def do_denied(self, command: dict[str, Any]) -> dict[str, Any]:
        """One call in which torch's computing operators are refused; recorded only, if `refuse` is not set.

        Its output goes to the output buffer. What was asked for is told by `do_found`, until when the refusal lasts: so
        nothing is done between the call and the answer without it.
        """
        allowed = frozenset(command["allowed"])
        mode, record = Denied(allowed), Recorded(allowed)
        open_until_told = ExitStack()
        self.refusal = (mode, record, open_until_told)
        # on a GPU, what runs on other threads is told by what it launches
        open_until_told.enter_context(record if self.device == "cpu" else nullcontext())
        open_until_told.enter_context(torch.no_grad())
        if command["refuse"]:
            open_until_told.enter_context(mode)
        try:
            result = self.model(*self.arguments)
            self._sync()
            answer = self._deliver(result, command["out"], "out")
            self._sync()
        except BaseException as error:  # the refusal itself, or what the submission made of it
            return {"ok": True, "failed": _describe_error(error)}
        return answer

    def do_found(self, command: dict[str, Any]) -> dict[str, Any]:
        """End the refusal; tell what was asked for, and what has been recorded into CUDA graphs."""
        mode, record, open_until_told = self.refusal
        open_until_told.close()
        found = list(dict.fromkeys([*mode.found, *record.found]))[:32]
        return {"found": found, "captured": self.captured[:32]}

    def do_repeat(self, command: dict[str, Any]) -> dict[str, Any]:
        """Calls for some seconds under the same refusal, while the judge looks on; tells how many.

        A shared byte is 1 inside an operator that is let through, and inside Triton's interpreter. It is done with one
        thread, since threads that wait for others only show that they wait.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        inside = _Inside(ctypes.c_uint8.from_address(self.buffers["inside"].bytes.data_ptr()))
        interpreted = 0

        def interprets(enters: bool) -> None:
            nonlocal interpreted
            interpreted += enters
            inside(enters)

        calls, end = 0, time.monotonic() + command["seconds"]
        with torch.no_grad(), Denied(frozenset(command["allowed"]), inside=inside), _told_of_interpreter(interprets):
            while not calls or time.monotonic() < end:
                self.model(*self.arguments)
                self._sync()
                calls += 1
        torch.set_num_threads(threads)
        return {"calls": calls, "interpreted": interpreted, "operators": inside.entered}

    def do_batch(self, command: dict[str, Any]) -> dict[str, Any]:
        """So many calls, timed by whoever waits for the answer.

        A GPU is first given so many cycles of waiting, during which the calls are launched: what is seen from outside
        is then the device's time, not the launches'. There the answer holds what the device's events say of all calls
        together, too, in microseconds; nothing is decided by it.
        """

        def calls() -> None:
            for _ in range(command["calls"]):
                self.last = None  # what a call gives lies where the one before lay, as where it is timed
                self.last = self.model(*self.arguments)

        if command["wait"]:
            wait_cycles(command["wait"])
        with torch.no_grad():
            if self.clock is not None:
                return {"us": self.clock.span(calls)}
            calls()
        self._sync()
        return {}

    def do_last(self, command: dict[str, Any]) -> dict[str, Any]:
        """The result of the last call of a batch, into the output buffer."""
        result, self.last = self.last, None
        answer = self._deliver(result, command["out"], "out")
        self._sync()
        return answer

    def do_trace(self, command: dict[str, Any]) -> dict[str, Any]:
        """Calls while CUPTI notes what they launch.

        Torch's computing operators are refused but for those in `allowed`; none is where that is null.
        """
        if self.tracer is None:
            return {"problem": self.no_tracer}
        inside = _Inside()

        def run() -> None:
            allowed = command["allowed"]
            mode = nullcontext() if allowed is None else Denied(frozenset(allowed), inside=inside)
            with torch.no_grad(), mode:
                for _ in range(command["calls"]):
                    self.model(*self.arguments)
            self._sync()

        try:
            kernels = self.tracer.trace(run, lambda: inside.depth > 0)
        except CuptiError as error:
            return {"problem": str(error)}
        return {"kernels": [dataclasses.asdict(kernel) for kernel in kernels[:_MOST_KERNELS]]}

    def do_time(self, command: dict[str, Any]) -> dict[str, Any]:
        """Cold calls; microseconds of each, and each one's output in a place of its own in the output buffer.

        There are as many as there are entries in `swaps`; each names the parts that are exchanged before it between the
        arguments and the other set. On a CPU there is one call. Where inputs come late it tells that it is ready for
        them, and goes on when told to.
        """
        swaps = command["swaps"]
        outputs: list[dict[str, Any]] = []

        def keep(result: Any) -> None:
            outputs.append(self._deliver(result, command["out"], "out", len(outputs) * command["step"]))

        with torch.no_grad(), self._elsewhere(command["moved"], warm=command["warm"]):
            if self.device == "cpu":
                # what OpenMP needs awake is woken before the inputs arrive, and goes on as it stood
                _fill(self.waking, 1)
            if command["late"]:
                # the inputs are written, and a CPU's caches emptied, while this process stands still: there is nothing
                # to do between their arrival and the call, so no thread can have worked ahead
                self._sync()
                wire.send(self.sock, {"ready": True, "nonce": command["nonce"]})
                _receive(self.sock, 1)
            times = self._time_cpu(keep) if self.device == "cpu" else self._time_cuda(swaps, self._flush(command), keep)
        return {"us": times, "outputs": outputs}

    @contextmanager
    def _elsewhere(self, sizes: list[int], *, warm: bool) -> Iterator[None]:
        """Hold memory of these sizes, so that what calls allocate lies elsewhere than before.

        Args:
            sizes: bytes of each piece.
            warm: make one call first. It gets the new places from the system, which takes time, and the device finds
                the addresses that another process's work has driven out of its tables.
        """
        held = [_empty(size, dtype=torch.uint8, device=self.device) for size in sizes]
        if warm:
            self.model(*self.arguments)
        yield
        del held

    def _flush(self, command: dict[str, Any]) -> torch.Tensor:
        """What is overwritten to empty the device's cache; at another place each time, as told."""
        if self.flush is None or self.flush.numel() != command["room"]:
            self.flush = torch.empty(command["room"], dtype=torch.uint8, device=self.device)
        return self.flush[command["flush_at"] :][: command["flush"]]

    def _time_cuda(self, swaps: list[Any], flush: torch.Tensor, keep: Callable[[Any], None]) -> list[float]:
        assert self.clock is not None
        return self.clock.time(lambda: self.model(*self.arguments), swaps, flush, self._sets(), keep)

    def _sets(self) -> list[int]:
        """Where the arguments lie, and where the other set does."""
        return [_address(self.buffers[name].bytes) for name in ("in", "other") if name in self.buffers]

    def _time_cpu(self, keep: Callable[[Any], None]) -> list[float]:
        start = time.perf_counter_ns()
        result = self.model(*self.arguments)
        spent = (time.perf_counter_ns() - start) / 1e3
        keep(result)
        return [spent]

    def _deliver(self, result: Any, expected: dict[str, Any], name: str, start: int = 0) -> dict[str, Any]:
        """Copy a result into the buffer of that name, from a byte on, if it has the expected structure."""
        try:
            got, _ = describe(result, dense=True)
        except TreeError as error:
            return {"ok": True, "unfit": str(error)}
        wanted, found = leaves(expected), leaves(got)
        if skeleton(got) == skeleton(expected):
            flat: list[torch.Tensor] = []
            _collect(result, flat)
            for tensor in flat:
                if str(tensor.device) != self.device:
                    return {"ok": True, "unfit": f"a tensor on {tensor.device} instead of {self.device}"}
            leaves_got = [leaf for _, leaf in found if leaf["t"] == "tensor"]
            leaves_wanted = [leaf for _, leaf in wanted if leaf["t"] == "tensor"]
            for tensor, mine, theirs in zip(flat, leaves_got, leaves_wanted, strict=True):
                mine["offset"] = theirs["offset"] + start
                self.courier.put(tensor, self.buffers[name], mine)
        return {"ok": True, "tree": got}

    def _poison(self, expected: dict[str, Any]) -> None:
        """Fill the memory that the call's allocations will get with NaN, so that what nobody writes shows."""
        held = []
        for _, leaf in leaves(expected):
            if leaf["t"] == "tensor":
                size = span(leaf["shape"], leaf["stride"]) * getattr(torch, leaf["dtype"]).itemsize
                # large pieces come from the system as zeros or from another block; a few are enough
                held += [torch.empty(size, dtype=torch.uint8, device=self.device).fill_(0xFF) for _ in range(3)]
                if size > _LARGE_BYTES:
                    held = held[:1]
        del held

    def _seed(self, seed: int) -> None:
        random.seed(seed)
        torch.manual_seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)

    def _sync(self) -> None:
        if self.device != "cpu":
            _synchronize()


@contextmanager
def _told_of_interpreter(inside: Callable[[bool], None]) -> Iterator[None]:
    """Within the block, `inside` is told when Triton's interpreter runs a kernel: it computes with NumPy."""
    interpreter = sys.modules.get("triton.runtime.interpreter")
    executor = getattr(interpreter, "GridExecutor", None)
    if executor is None:
        yield
        return
    original = executor.__call__

    def watched(*arguments: Any, **options: Any) -> Any:
        inside(True)
        try:
            return original(*arguments, **options)
        finally:
            inside(False)

    executor.__call__ = watched
    try:
        yield
    finally:
        executor.__call__ = original


def _collect(node: Any, out: list[torch.Tensor]) -> None:
    """Tensors of a pytree in the order of `describe`."""
    if isinstance(node, torch.Tensor):
        out.append(node)
    elif isinstance(node, dict):
        for key in ordered_keys(node):
            _collect(dict.__getitem__(node, key), out)
    elif isinstance(node, list):
        for item in list.__iter__(node):
            _collect(item, out)
    elif isinstance(node, tuple):
        for item in tuple.__iter__(node):
            _collect(item, out)


def serve(sock: socket.socket) -> None:
    """Run commands from the judge until it goes away."""
    try:
        _Harness(sock).run()
    except (wire.WireError, OSError):
        return
