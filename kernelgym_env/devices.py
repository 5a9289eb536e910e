"""Which devices this machine has, found without CUDA and without torch, and which languages are for which kind.

A client process must not create a CUDA context (it may fork, and the memory is the trainer's), so the count comes
from NVIDIA's management library.
"""

from __future__ import annotations

import ctypes
import functools
import platform

from kernelgym_env import settings
from kernelgym_env.errors import InvalidOptionError

__all__ = ["check_backend_kind", "cpu_name", "cuda_device_names", "device_kind", "resolve_device"]

_ONLY_ON = {"cuda": "cuda", "cupy": "cuda", "cpp": "cpu"}


@functools.lru_cache(maxsize=1)
def _physical_names() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs of this machine by index, empty without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ()
    if nvml.nvmlInit_v2():
        return ()
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return ()
        names = []
        for index in range(count.value):
            handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            found = not nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            found = found and not nvml.nvmlDeviceGetName(handle, text, 96)
            names.append(text.value.decode() if found else "NVIDIA GPU")
        return tuple(names)
    finally:
        nvml.nvmlShutdown()


def cuda_device_names() -> list[str]:
    """Names of the GPUs this process may use, in the order of their CUDA indices.

    ``CUDA_VISIBLE_DEVICES`` is honoured; an entry that is not an index (a UUID or MIG id) counts as one device.
    """
    names = list(_physical_names())
    visible = settings.visible_devices()
    if visible is None or not names:
        return names
    return [names[int(e)] if e.isdigit() and int(e) < len(names) else "NVIDIA GPU" for e in visible]


def cpu_name() -> str:
    """The processor's model, or its architecture where the model is not told."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def resolve_device(device: str) -> str:
    """Turn ``auto`` and ``cuda`` into a device of this machine.

    Args:
        device: ``auto``, ``cpu``, ``cuda`` (any GPU) or ``cuda:<index>``.

    Returns:
        ``cpu``, ``cuda`` or ``cuda:<index>``; ``auto`` gives ``cuda`` where there is a GPU.

    Raises:
        InvalidOptionError: if a GPU is asked for that this process cannot see.

    >>> resolve_device("cpu")
    'cpu'
    """
    if device == "cpu":
        return device
    count = len(cuda_device_names())
    if device == "auto":
        return "cuda" if count else "cpu"
    if not count:
        raise InvalidOptionError(
            f"Device {device!r} needs an NVIDIA GPU and this process sees none; use device='cpu' or 'auto', "
            "or see `kernelgym doctor`."
        )
    if ":" in device and int(device.partition(":")[2]) >= count:
        raise InvalidOptionError(f"Device {device!r} does not exist: this process sees {count} GPU(s), from cuda:0.")
    return device


def device_kind(device: str) -> str:
    """``cpu`` or ``cuda``: which sizes of a task apply."""
    return "cpu" if resolve_device(device) == "cpu" else "cuda"


def check_backend_kind(backend: str, kind: str) -> None:
    """Raise if a backend is not for a kind of device.

    Args:
        backend: ``cpp`` is for a CPU, ``cuda`` and ``cupy`` are for a GPU, others for both.
        kind: ``cpu`` or ``cuda``.

    Raises:
        InvalidOptionError: with what is allowed.

    >>> check_backend_kind("triton", "cpu")
    """
    if _ONLY_ON.get(backend, kind) != kind:
        raise InvalidOptionError(
            f"Backend {backend!r} does not run on device {kind!r}. Allowed on 'cpu': auto, triton, cpp; on 'cuda': "
            "auto, triton, cuda, cupy. Name another backend or device."
        )
