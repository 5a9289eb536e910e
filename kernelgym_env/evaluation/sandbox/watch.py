"""Watching what a job takes, from its supervisor: for what the kernel does not bound by itself.

- `Watch` -- looks at a process and all below it; says what is over its bound.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from kernelgym_env.evaluation.processes import descendants

__all__ = ["Watch"]


class Watch:
    """Looks at everything below a process.

    Args:
        pid: the process; it is not counted itself.
        memory_bytes: bound on memory, 0 for none.
        processes: bound on processes and threads, 0 for none.
    """

    def __init__(self, pid: int, memory_bytes: int, processes: int) -> None:
        self.pid = pid
        self.memory_bytes = memory_bytes
        self.processes = processes

    def excess(self) -> str:
        """``"memory"`` or ``"processes"`` if the job is over that bound, else ``""``."""
        found = list(_below(self.pid))
        if self.processes and sum(_threads(pid) for pid in found) > self.processes:
            return "processes"
        # what forked processes share counts for each of them here, so a sum over the bound is only a reason to look
        if self.memory_bytes and _resident(found) > self.memory_bytes and _proportional(found) > self.memory_bytes:
            return "memory"
        return ""


def _below(pid: int) -> Iterable[int]:
    """Every process below `pid`, by the kernel's own lists where it keeps them."""
    if not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        return descendants(pid)
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in _children(parent)]
        found += level
    return found


def _children(pid: int) -> Iterable[int]:
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                yield from (int(child) for child in file.read().split())


def _threads(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    return 0


def _sum(file: str, pids: Iterable[int], names: tuple[str, ...]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", encoding="ascii", errors="replace") as lines:
            total += sum(int(line.split()[1]) for line in lines if line.startswith(names))
    return total << 10


def _resident(pids: Iterable[int]) -> int:
    """Bytes of memory of their own, and of shared memory, each counted in full."""
    return _sum("status", pids, ("RssAnon:", "RssShmem:"))


def _proportional(pids: Iterable[int]) -> int:
    """The same with what several processes share divided among them."""
    return _sum("smaps_rollup", pids, ("Pss_Anon:", "Pss_Shmem:"))
