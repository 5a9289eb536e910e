"""Bounds on what a process and its children may take.

- `apply` -- set them.
- `processes` -- the default bound on processes and threads.
- `default_memory` -- the default bound on memory.
- `volunteer` -- let the kernel end this process before others.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from kernelgym_env.evaluation.sandbox.plan import Plan

__all__ = ["apply", "default_memory", "processes", "volunteer"]

_FILE_BYTES = 16 << 30
_OPEN_FILES = 4_096


def default_memory() -> int:
    """Three quarters of the memory of this machine, or of the container where that is less, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _group_limits():
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            total = min(total, int(file.read_text(encoding="ascii")))
    return total * 3 // 4


def _group_limits() -> Iterator[Path]:
    """Files with the memory limits of this process's control groups, of both versions."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, own = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            root = Path("/sys/fs/cgroup/memory" if controllers else "/sys/fs/cgroup")
            name = "memory.limit_in_bytes" if controllers else "memory.max"
            folder = root / own.lstrip("/")
            yield from (place / name for place in (folder, *folder.parents) if place.is_relative_to(root))


def processes() -> int:
    """Processes and threads that a job may have: compilers and thread pools on every core, with room."""
    return 128 + 16 * (os.cpu_count() or 1)


def volunteer() -> None:
    """Be the first to go when the machine runs out of memory."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def apply(plan: Plan, *, own_count: bool) -> str:
    """Set the limits of this process, which its children inherit.

    Args:
        plan: the plan.
        own_count: whether the kernel counts this job's processes by themselves.

    Returns:
        ``"on"`` or why not.
    """
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, _FILE_BYTES)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if plan.processes:
        others = 0 if own_count or os.geteuid() == 0 else _threads_of_user()
        _lower(resource.RLIMIT_NPROC, plan.processes + others)
    # the address space is no measure on a GPU, where CUDA reserves terabytes of it
    if plan.memory_bytes and plan.kind == "cpu":
        _lower(resource.RLIMIT_DATA, plan.memory_bytes + _own_data())
    return "on"


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _own_data() -> int:
    """Bytes that count towards the limit now."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 0


def _threads_of_user() -> int:
    """Processes and threads that run under this process's user id."""
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}").st_uid == os.geteuid():
                    count += len(os.listdir(f"/proc/{entry}/task"))
    return count
