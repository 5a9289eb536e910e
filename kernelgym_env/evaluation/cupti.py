"""What a process launches on its GPU, by CUPTI: each kernel's device time, and from where in the code it was launched.

Runs beside a submission's code, in the candidate. NVIDIA's profiling library is called directly, since `torch.profiler`
takes seconds at its first use. Two of its parts are used: records say which kernels ran and how long; callbacks, within
the very call that launches, say which files of machine code and which Python function the launch came through. Kernels
of a CUDA graph are launched by nobody, so the node's making is what is noted.

- `Tracer` -- attached once, before a submission's code is loaded; `trace` looks at some calls.
- `Kernel` -- what was seen of one kernel.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernelgym_env.evaluation.codemap import CodeMap

__all__ = ["CuptiError", "Kernel", "Tracer"]

_DRIVER, _RESOURCE = 1, 3
_ENTER = 0
_NODE_CREATED, _NODE_CLONED = 13, 20
_CONCURRENT_KERNEL = 10
_NO_MORE_RECORDS = 12
_BUFFER_BYTES = 1 << 20
_DEPTH = 48
_MOST_FILES, _MOST_SYMBOL = 8, 300
_LAUNCHES = ("cuLaunch",)

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class _CallbackData(ctypes.Structure):
    """``CUpti_CallbackData``."""

    _fields_ = [
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
        ("context_uid", ctypes.c_uint32),
        ("correlation_data", ctypes.c_void_p),
        ("correlation", ctypes.c_uint32),
    ]


class _ResourceData(ctypes.Structure):
    """``CUpti_ResourceData``."""

    _fields_ = [("context", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("descriptor", ctypes.c_void_p)]


class _GraphData(ctypes.Structure):
    """The first members of ``CUpti_GraphData``."""

    _fields_ = [
        ("graph", ctypes.c_void_p),
        ("original_graph", ctypes.c_void_p),
        ("node", ctypes.c_void_p),
        ("original_node", ctypes.c_void_p),
    ]


class _KernelRecord(ctypes.Structure):
    """What all versions of ``CUpti_ActivityKernel`` since CUDA 11 begin with."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("cache", ctypes.c_uint8),
        ("shared_config", ctypes.c_uint8),
        ("registers", ctypes.c_uint16),
        ("partitioned", ctypes.c_uint32 * 2),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("completed", ctypes.c_uint64),
        ("device", ctypes.c_uint32),
        ("context", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("memory", ctypes.c_uint32 * 4),
        ("correlation", ctypes.c_uint32),
        ("grid_id", ctypes.c_int64),
        ("name", ctypes.c_char_p),
        ("reserved", ctypes.c_void_p),
        ("queued", ctypes.c_uint64),
        ("submitted", ctypes.c_uint64),
        ("launch", ctypes.c_uint8 * 4),
        ("shared_executed", ctypes.c_uint32),
        ("graph_node", ctypes.c_uint64),
    ]


class CuptiError(Exception):
    """NVIDIA's profiling library is missing, or refuses to work."""


@dataclass
class Kernel:
    """What was seen of one kernel in the calls that were looked at.

    Attributes:
        name: its symbol.
        files: files of machine code that its launch came through, innermost first.
        python: where the Python function that is the kernel's own source was defined, for Triton; ``""`` otherwise.
        allowed: whether it was launched inside an operator that any submission may use.
        launches: how often it ran.
        us: device time in microseconds, of all launches together.
    """

    name: str
    files: tuple[str, ...]
    python: str
    allowed: bool
    launches: int = 0
    us: float = 0.0


@dataclass(frozen=True)
class _Origin:
    """Where a launch came from: return addresses, and what Python knows."""

    addresses: tuple[int, ...] = ()
    python: str = ""
    allowed: bool = False


@dataclass
class _Seen:
    """What the callbacks collect while calls are looked at."""

    origins: dict[int, _Origin] = field(default_factory=dict)
    records: list[tuple[str, float, int, int]] = field(default_factory=list)


class Tracer:
    """Notes launches.

    Raises:
        CuptiError: if the library is not loaded in this process (PyTorch with CUDA brings it), or does not work.
    """

    def __init__(self) -> None:
        self._lib = _library()
        self._backtrace = ctypes.CDLL(None).backtrace
        self._seen: _Seen | None = None
        self._nodes: dict[int, _Origin] = {}
        self._names: dict[int, bool] = {}
        self._inside: Callable[[], bool] = lambda: False
        self._thread = 0
        self._buffers: dict[int, Any] = {}
        # kept, or ctypes frees what the library still calls
        self._callback = _CALLBACK(self._called)
        self._requested = _REQUESTED(self._give_buffer)
        self._completed = _COMPLETED(self._take_buffer)
        self._subscriber = ctypes.c_void_p()
        self._do("cuptiSubscribe", ctypes.byref(self._subscriber), self._callback, None)
        for event in (_NODE_CREATED, _NODE_CLONED):
            self._do("cuptiEnableCallback", ctypes.c_uint32(1), self._subscriber, _RESOURCE, ctypes.c_uint32(event))

    def trace(self, run: Callable[[], Any], inside: Callable[[], bool]) -> list[Kernel]:
        """Look at what is launched while `run` runs, until the device is idle.

        Args:
            run: makes the calls and waits for the device.
            inside: whether this thread is inside an operator that any submission may use.

        Returns:
            The kernels that ran.

        Raises:
            CuptiError: if the library refuses.
        """
        self._seen, self._inside, self._thread = _Seen(), inside, threading.get_ident()
        self._do("cuptiActivityRegisterCallbacks", self._requested, self._completed)
        self._do("cuptiActivityEnable", _CONCURRENT_KERNEL)
        self._do("cuptiEnableDomain", ctypes.c_uint32(1), self._subscriber, _DRIVER)
        try:
            run()
        finally:
            self._do("cuptiEnableDomain", ctypes.c_uint32(0), self._subscriber, _DRIVER)
            self._do("cuptiActivityFlushAll", ctypes.c_uint32(1))
            self._do("cuptiActivityDisable", _CONCURRENT_KERNEL)
            seen, self._seen = self._seen, None
        assert seen is not None
        return self._kernels(seen)

    def _kernels(self, seen: _Seen) -> list[Kernel]:
        code = CodeMap("self")
        code.read()
        found: dict[Any, Kernel] = {}
        for name, us, correlation, node in seen.records:
            origin = (self._nodes.get(node) if node else seen.origins.get(correlation)) or _Origin()
            files = _files(code, origin.addresses)
            key = (name, files, origin.python, origin.allowed)
            kernel = found.setdefault(key, Kernel(name, files, origin.python, origin.allowed))
            kernel.launches += 1
            kernel.us += us
        return sorted(found.values(), key=lambda kernel: -kernel.us)

    def _do(self, name: str, *arguments: Any) -> None:
        code = getattr(self._lib, name)(*arguments)
        if code:
            raise CuptiError(f"{name} failed with code {code}")

    def _called(self, _: Any, domain: int, event: int, data: int) -> None:
        """Called by the library. An exception would be lost here; the launch would stay without an origin."""
        if domain == _DRIVER:
            self._launched(event, data)
        elif domain == _RESOURCE:
            self._made_node(event, data)

    def _launched(self, event: int, data: int) -> None:
        wanted = self._names.get(event)
        if wanted is False:
            return
        told = _CallbackData.from_address(data)
        if wanted is None:
            wanted = self._names[event] = (told.function or b"").decode().startswith(_LAUNCHES)
        if wanted and told.site == _ENTER and self._seen is not None:
            self._seen.origins[told.correlation] = self._origin()

    def _made_node(self, event: int, data: int) -> None:
        told = _GraphData.from_address(_ResourceData.from_address(data).descriptor)
        node = self._node_id(told.node)
        if event == _NODE_CREATED:
            self._nodes[node] = self._origin()
        elif event == _NODE_CLONED:
            self._nodes[node] = self._nodes.get(self._node_id(told.original_node)) or _Origin()

    def _node_id(self, node: int) -> int:
        number = ctypes.c_uint64()
        self._do("cuptiGetGraphNodeId", ctypes.c_void_p(node), ctypes.byref(number))
        return number.value

    def _origin(self) -> _Origin:
        addresses = (ctypes.c_void_p * _DEPTH)()
        count = self._backtrace(addresses, _DEPTH)
        here = threading.get_ident() == self._thread
        return _Origin(tuple(address or 0 for address in addresses[:count]), _triton_source(), here and self._inside())

    def _give_buffer(self, buffer: Any, size: Any, most: Any) -> None:
        made = (ctypes.c_uint64 * (_BUFFER_BYTES // 8))()
        address = ctypes.addressof(made)
        self._buffers[address] = made
        buffer[0], size[0], most[0] = address, _BUFFER_BYTES, 0

    def _take_buffer(self, _: Any, __: int, buffer: int, ___: int, valid: int) -> None:
        made = self._buffers.pop(buffer, None)
        record = ctypes.c_void_p()
        while made is not None and self._seen is not None:
            if self._lib.cuptiActivityGetNextRecord(
                ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
            ):
                return
            told = _KernelRecord.from_address(record.value or 0)
            if told.kind == _CONCURRENT_KERNEL:
                name = (told.name or b"").decode("utf-8", "replace")[:_MOST_SYMBOL]
                us = (told.end - told.start) / 1e3
                self._seen.records.append((name, us, told.correlation, told.graph_node))


def _library() -> ctypes.CDLL:
    """The library as PyTorch loaded it."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        paths = {line.split(None, 5)[5].strip() for line in file if "libcupti.so" in line}
    for path in sorted(paths):
        return ctypes.CDLL(path)
    raise CuptiError("libcupti is not loaded")


def _triton_source() -> str:
    """The file in which the Triton kernel that is being launched was defined, ``""`` if it is none."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "run" and "triton" in frame.f_code.co_filename:
            kernel = frame.f_locals.get("self")
            code = getattr(getattr(kernel, "fn", None), "__code__", None)
            if code is not None:
                return str(code.co_filename)
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _files(code: CodeMap, addresses: tuple[int, ...]) -> tuple[str, ...]:
    """Files of return addresses, innermost first; one that comes several times in a row is named once."""
    files: list[str] = []
    for address in addresses:
        path = code.find(address) or ""
        if not files or files[-1] != path:
            files.append(path)
    # the first ones are this file's own way into the call
    mine = max((index for index, path in enumerate(files) if "libcupti" in path), default=-1)
    return tuple(files[mine + 1 :][:_MOST_FILES])
