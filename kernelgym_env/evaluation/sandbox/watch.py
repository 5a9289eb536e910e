"""Watching what a job takes, from its supervisor: for what the kernel does not bound by itself.

- `Watch` -- looks at a process and all below it; says what is over its bound.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

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
        found = _below(self.pid)
        if self.processes and sum(_threads(pid) for pid in found) > self.processes:
            return "processes"
        # what forked processes share counts for each of them here, so a sum over the bound is only a reason to look
        if self.memory_bytes and _resident(found) > self.memory_bytes and _proportional(found) > self.memory_bytes:
            return "memory"
        return ""


def _below(pid: int) -> list[int]:
    """Every process below `pid`, by the kernel's own lists where it keeps them."""
    if not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        return descendants(pid)
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in _children(parent)]
        found += level
    return found


def _children(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                yield from (int(child) for child in file.read().split())


def _threads(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    return 0


def _files(pids: Iterable[int]) -> int:
    """Bytes in memory files that are open, each counted once: what is written there need not be mapped."""
    sizes: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{name}"
                with contextlib.suppress(OSError):
                    if os.readlink(path).startswith("/memfd:"):
                        found = os.stat(path)
                        sizes[found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def _sum(file: str, pids: Iterable[int], names: tuple[str, ...]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", encoding="ascii", errors="replace") as lines:
            total += sum(int(line.split()[1]) for line in lines if line.startswith(names))
    return total << 10


def _resident(pids: list[int]) -> int:
    """Bytes of memory of their own, and of shared memory, each counted in full."""
    return _sum("status", pids, ("RssAnon:",)) + max(_sum("status", pids, ("RssShmem:",)), _files(pids))


def _proportional(pids: list[int]) -> int:
    """The same with what several processes share divided among them."""
    shared = max(_sum("smaps_rollup", pids, ("Pss_Shmem:",)), _files(pids))
    return _sum("smaps_rollup", pids, ("Pss_Anon:",)) + shared
