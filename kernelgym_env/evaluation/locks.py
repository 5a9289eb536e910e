"""One timing at a time per device, across all processes of this user on the machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from kernelgym_env import settings

__all__ = ["device_lock"]


@contextmanager
def device_lock(device: str) -> Iterator[None]:
    """Hold the exclusive lock of a device; the kernel releases it when the holder dies.

    Args:
        device: e.g. ``"cpu"`` or ``"cuda:0"``.
    """
    folder = settings.runtime_dir() / "locks"
    folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(folder / f"{device.replace(':', '-')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
