"""NVIDIA GPUs and their settings, without CUDA: through NVIDIA's management library.

- `Gpu` -- one device.
- `query` -- all of them.

`nvidia-ml-py` is used where it is installed; else the same library is called directly.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

__all__ = ["COMPUTE_MODES", "Gpu", "query"]

COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
"""Names of NVML's compute modes, by their numbers."""


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
        try:
            return getattr(self.nvml, call)(*arguments)
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


def _decoded(text: Any) -> str | None:
    return text.decode() if isinstance(text, bytes) else text


def query() -> tuple[str, list[Gpu]]:
    """The driver's version and the devices of this machine, whatever ``CUDA_VISIBLE_DEVICES`` says.

    Raises:
        OSError: if there is no driver, or it does not answer.
    """
    library: _Library | _Package
    try:
        library = _Package()
    except ImportError:
        library = _Library()
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
