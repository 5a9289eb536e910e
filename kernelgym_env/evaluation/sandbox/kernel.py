"""The kernel calls that Python's library lacks, made through libc.

- `syscall`, `prctl` -- raise `OSError` where the kernel says no.
- `machine` -- ``"x86_64"``, ``"aarch64"``, or another name for which no numbers of system calls are known here.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

__all__ = ["libc", "machine", "prctl", "syscall"]

libc = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
"""The C library, loaded before any fork."""


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def syscall(number: int, *arguments: Any) -> int:
    """A system call by number; integers are passed as 64 bits.

    Raises:
        OSError: if the kernel refuses it.
    """
    assert libc is not None
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(libc.syscall(ctypes.c_long(number), *whole))


def prctl(option: int, *arguments: int) -> int:
    """``prctl(2)``.

    Raises:
        OSError: if the kernel refuses it.
    """
    assert libc is not None
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(libc.prctl(ctypes.c_int(option), *[ctypes.c_ulong(value) for value in padded]))


def machine() -> str:
    """The processor architecture of this process."""
    return platform.machine()
