"""NVIDIA GPUs, their settings and their state, without CUDA: through NVIDIA's management library.

- `Gpu` -- one device; `query` -- all of them.
- `GpuState` -- what a device is doing; `state` -- that of one device.
- `GpuProcess` -- a process that has a CUDA context there.
- `clock_reasons` -- names of what holds the clocks.

`nvidia-ml-py` is used where it is installed; else the same library is called directly.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

__all__ = [
    "CLOCK_REASONS",
    "COMPUTE_MODES",
    "SLOWING",
    "Gpu",
    "GpuProcess",
    "GpuState",
    "clock_reasons",
    "query",
    "state",
]

COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
"""Names of NVML's compute modes, by their numbers."""

CLOCK_REASONS = (
    "idle",
    "application_clocks",
    "software_power_cap",
    "hardware_slowdown",
    "sync_boost",
    "software_thermal",
    "hardware_thermal",
    "power_brake",
    "display_clocks",
)
"""What holds the clocks below their maximum: NVML's "clocks event reasons", earlier called "throttle reasons", by the
number of the bit."""

SLOWING = frozenset({"software_power_cap", "hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake"})
"""Those of `CLOCK_REASONS` that come and go with load and temperature, and so make two times differ."""

_SM, _MEMORY = 1, 2  # nvmlClockType_t
_GPU_TEMPERATURE = 0  # nvmlTemperatureSensors_t
_NOT_FOUND, _TOO_SMALL = 6, 7  # nvmlReturn_t
_REASONS_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_NOT_AVAILABLE = 2**64 - 1
_ROOM = 16


@dataclass(frozen=True)
class Gpu:
    """One device of this machine.

    Attributes:
        index: its NVML index (the order of the PCI bus).
        name: e.g. ``NVIDIA H200``.
        uuid: ``GPU-…``.
        memory_gib: total memory.
        free_gib: free memory.
        compute_mode: one of `COMPUTE_MODES`, ``""`` if unknown.
        mig: whether it is split into MIG instances; None if it cannot be.
        persistence: whether the driver keeps it initialised; None if unknown.
    """

    index: int
    name: str
    uuid: str
    memory_gib: float
    free_gib: float
    compute_mode: str
    mig: bool | None
    persistence: bool | None


@dataclass(frozen=True)
class GpuProcess:
    """A process that has a CUDA context on a device.

    Attributes:
        pid: its id as the driver counts. In a container that is mostly the host's id, and none of the container's.
        used_mib: memory of the device that it holds, None if unknown.
        busy: greatest share of a sample period in which its kernels ran, 0 to 1; None if unknown.
    """

    pid: int
    used_mib: float | None
    busy: float | None


@dataclass(frozen=True)
class GpuState:
    """What a device is doing. None stands for what the driver does not tell.

    Attributes:
        uuid: ``GPU-…``.
        processes: what has a context on it, by pid; empty also where a container hides them.
        sm_mhz: clock of the multiprocessors.
        memory_mhz: clock of the memory.
        reasons: what holds the clocks, names of `CLOCK_REASONS`.
        temperature_c: degrees Celsius.
        power_w: watts.
        utilisation: share of the last sample period, up to a second, in which a kernel ran, 0 to 1.
    """

    uuid: str
    processes: tuple[GpuProcess, ...] | None
    sm_mhz: int | None
    memory_mhz: int | None
    reasons: tuple[str, ...] | None
    temperature_c: int | None
    power_w: float | None
    utilisation: float | None


def clock_reasons(bits: int) -> tuple[str, ...]:
    """Names of the bits that are set; a bit that this version does not know is named by its value.

    >>> clock_reasons(0), clock_reasons(0x24), clock_reasons(0x401)
    ((), ('software_power_cap', 'software_thermal'), ('idle', '0x400'))
    """
    places = range(max(bits, 0).bit_length())
    return tuple(
        CLOCK_REASONS[place] if place < len(CLOCK_REASONS) else hex(1 << place) for place in places if bits >> place & 1
    )


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t of the calls with the ending _v2 and _v3."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


class _Sample(ctypes.Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("timeStamp", ctypes.c_ulonglong),
        ("smUtil", ctypes.c_uint),
        ("memUtil", ctypes.c_uint),
        ("encUtil", ctypes.c_uint),
        ("decUtil", ctypes.c_uint),
    )


class _Library:
    """The few calls needed, over ctypes; each returns None where the device does not answer."""

    def __init__(self) -> None:
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise OSError("no NVIDIA driver: libnvidia-ml.so.1 was not found") from error
        if code := self.nvml.nvmlInit_v2():
            raise OSError(f"nvmlInit failed with code {code}")

    def close(self) -> None:
        self.nvml.nvmlShutdown()

    def driver(self) -> str:
        text = ctypes.create_string_buffer(96)
        return "" if self.nvml.nvmlSystemGetDriverVersion(text, 96) else text.value.decode()

    def count(self) -> int:
        number = ctypes.c_uint()
        return 0 if self.nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)) else number.value

    def handle(self, index: int) -> Any:
        handle = ctypes.c_void_p()
        return None if self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) else handle

    def text(self, call: str, handle: Any) -> str | None:
        text = ctypes.create_string_buffer(96)
        return None if getattr(self.nvml, call)(handle, text, 96) else text.value.decode()

    def number(self, call: str, handle: Any) -> int | None:
        number = ctypes.c_uint()
        return None if getattr(self.nvml, call)(handle, ctypes.byref(number)) else number.value

    def mig(self, handle: Any) -> int | None:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        failed = self.nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending))
        return None if failed else current.value

    def memory(self, handle: Any) -> tuple[int, int]:
        """Total and free bytes."""
        sizes = (ctypes.c_ulonglong * 3)()
        return (0, 0) if self.nvml.nvmlDeviceGetMemoryInfo(handle, sizes) else (sizes[0], sizes[1])

    def handle_of(self, uuid: str) -> Any:
        handle = ctypes.c_void_p()
        return None if self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) else handle

    def number_of(self, call: str, handle: Any, kind: int) -> int | None:
        """What a call that takes a kind says, e.g. the clock of one domain."""
        number = ctypes.c_uint()
        return None if getattr(self.nvml, call)(handle, kind, ctypes.byref(number)) else number.value

    def reasons(self, handle: Any) -> int | None:
        bits = ctypes.c_ulonglong()
        for call in _REASONS_CALLS:  # the second is the name in older drivers
            ask = getattr(self.nvml, call, None)
            if ask is not None and not ask(handle, ctypes.byref(bits)):
                return bits.value
        return None

    def utilisation(self, handle: Any) -> int | None:
        """Percent."""
        shares = (ctypes.c_uint * 2)()
        return None if self.nvml.nvmlDeviceGetUtilizationRates(handle, shares) else shares[0]

    def processes(self, handle: Any) -> list[tuple[int, int | None]] | None:
        """Pid and bytes of each."""
        ask = getattr(self.nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        ask = ask or getattr(self.nvml, "nvmlDeviceGetComputeRunningProcesses_v2", None)
        if ask is None:
            return None
        count, code = ctypes.c_uint(_ROOM), _TOO_SMALL
        while code == _TOO_SMALL:  # more may come between two calls
            room = max(_ROOM, 2 * count.value)
            found = (_ProcessInfo * room)()
            count = ctypes.c_uint(room)
            code = ask(handle, ctypes.byref(count), found)
        if code:
            return None
        return [(one.pid, _available(one.usedGpuMemory)) for one in found[: count.value]]

    def samples(self, handle: Any, since_us: int) -> list[tuple[int, int]] | None:
        """Pid and percent of each sample."""
        count = ctypes.c_uint()
        ask, since = self.nvml.nvmlDeviceGetProcessUtilization, ctypes.c_ulonglong(since_us)
        code = ask(handle, None, ctypes.byref(count), since)
        if code == _TOO_SMALL:
            count.value += _ROOM
            found = (_Sample * count.value)()
            code = ask(handle, found, ctypes.byref(count), since)
            if not code:
                return [(one.pid, one.smUtil) for one in found[: count.value]]
        return [] if code in (0, _NOT_FOUND) else None


class _Package:
    """The same over `nvidia-ml-py`."""

    def __init__(self) -> None:
        import pynvml

        self.nvml = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise OSError(f"nvmlInit failed: {error}") from error

    def _ask(self, call: str, *arguments: Any) -> Any:
        ask = getattr(self.nvml, call, None)  # releases differ in what they have
        if ask is None:
            return None
        try:
            return ask(*arguments)
        except self.nvml.NVMLError:
            return None

    def close(self) -> None:
        self._ask("nvmlShutdown")

    def driver(self) -> str:
        return _decoded(self._ask("nvmlSystemGetDriverVersion")) or ""

    def count(self) -> int:
        return self._ask("nvmlDeviceGetCount") or 0

    def handle(self, index: int) -> Any:
        return self._ask("nvmlDeviceGetHandleByIndex", index)

    def text(self, call: str, handle: Any) -> str | None:
        return _decoded(self._ask(call, handle))

    def number(self, call: str, handle: Any) -> int | None:
        return self._ask(call, handle)

    def mig(self, handle: Any) -> int | None:
        modes = self._ask("nvmlDeviceGetMigMode", handle)
        return None if modes is None else modes[0]

    def memory(self, handle: Any) -> tuple[int, int]:
        found = self._ask("nvmlDeviceGetMemoryInfo", handle)
        return (0, 0) if found is None else (found.total, found.free)

    def handle_of(self, uuid: str) -> Any:
        return self._ask("nvmlDeviceGetHandleByUUID", uuid)

    def number_of(self, call: str, handle: Any, kind: int) -> int | None:
        return self._ask(call, handle, kind)

    def reasons(self, handle: Any) -> int | None:
        found = (self._ask(call, handle) for call in _REASONS_CALLS)
        return next((bits for bits in found if bits is not None), None)

    def utilisation(self, handle: Any) -> int | None:
        found = self._ask("nvmlDeviceGetUtilizationRates", handle)
        return None if found is None else found.gpu

    def processes(self, handle: Any) -> list[tuple[int, int | None]] | None:
        found = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        return None if found is None else [(one.pid, _available(one.usedGpuMemory)) for one in found]

    def samples(self, handle: Any, since_us: int) -> list[tuple[int, int]] | None:
        try:
            found = self.nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except self.nvml.NVMLError as error:
            return [] if getattr(error, "value", None) == _NOT_FOUND else None
        return [(one.pid, one.smUtil) for one in found]


def _decoded(text: Any) -> str | None:
    return text.decode() if isinstance(text, bytes) else text


def _available(size: int | None) -> int | None:
    return None if size == _NOT_AVAILABLE else size


def _open() -> _Library | _Package:
    try:
        return _Package()
    except ImportError:
        return _Library()


def state(device: int | str, *, since_us: int = 0) -> GpuState:
    """What a device is doing now. A few milliseconds; where the driver is not kept loaded, up to seconds.

    Args:
        device: its NVML index, or its UUID with or without the ``GPU-`` in front.
        since_us: microseconds since 1970 from which on `GpuProcess.busy` counts; 0 for all samples that the driver
            still has, some seconds of them.

    Raises:
        OSError: if there is no driver, it does not answer, or it has no such device.
    """
    library = _open()
    try:
        if isinstance(device, int):
            handle = library.handle(device)
        else:
            handle = library.handle_of(device if device.startswith(("GPU-", "MIG-")) else f"GPU-{device}")
        if handle is None:
            raise OSError(f"NVIDIA's driver knows no device {device!r}")
        return _state(library, handle, since_us)
    finally:
        library.close()


def _state(library: _Library | _Package, handle: Any, since_us: int) -> GpuState:
    processes, bits = library.processes(handle), library.reasons(handle)
    power, percent = library.number("nvmlDeviceGetPowerUsage", handle), library.utilisation(handle)
    return GpuState(
        library.text("nvmlDeviceGetUUID", handle) or "",
        None if processes is None else _processes(processes, library.samples(handle, since_us)),
        library.number_of("nvmlDeviceGetClockInfo", handle, _SM),
        library.number_of("nvmlDeviceGetClockInfo", handle, _MEMORY),
        None if bits is None else clock_reasons(bits),
        library.number_of("nvmlDeviceGetTemperature", handle, _GPU_TEMPERATURE),
        None if power is None else power / 1000,
        None if percent is None else percent / 100,
    )


def _processes(found: list[tuple[int, int | None]], samples: list[tuple[int, int]] | None) -> tuple[GpuProcess, ...]:
    busy: dict[int, float] = {}
    for pid, percent in samples or ():
        busy[pid] = max(busy.get(pid, 0.0), percent / 100)
    return tuple(
        GpuProcess(pid, None if size is None else size / 2**20, None if samples is None else busy.get(pid, 0.0))
        for pid, size in sorted(found, key=lambda one: one[0])
    )


def query() -> tuple[str, list[Gpu]]:
    """The driver's version and the devices of this machine, whatever ``CUDA_VISIBLE_DEVICES`` says.

    Raises:
        OSError: if there is no driver, or it does not answer.
    """
    library = _open()
    try:
        devices = [(index, library.handle(index)) for index in range(library.count())]
        return library.driver(), [_describe(library, index, handle) for index, handle in devices if handle is not None]
    finally:
        library.close()


def _describe(library: _Library | _Package, index: int, handle: Any) -> Gpu:
    mode = library.number("nvmlDeviceGetComputeMode", handle)
    mig, persistence = library.mig(handle), library.number("nvmlDeviceGetPersistenceMode", handle)
    total, free = library.memory(handle)
    return Gpu(
        index,
        library.text("nvmlDeviceGetName", handle) or "NVIDIA GPU",
        library.text("nvmlDeviceGetUUID", handle) or "",
        total / 2**30,
        free / 2**30,
        COMPUTE_MODES[mode] if mode is not None and mode < len(COMPUTE_MODES) else "",
        None if mig is None else bool(mig),
        None if persistence is None else bool(persistence),
    )
