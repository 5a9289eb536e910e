"""Watching what a job takes, from its supervisor: for what the kernel does not bound by itself.

- `Watch` -- looks at a process and all below it; says what is over its bound.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable

from kernelgym_env.evaluation.processes import below

__all__ = ["Watch"]

_LITTLE = 0.1


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

    def excess(self, stop: Callable[[], bool] = lambda: False) -> str:
        """``"memory"`` or ``"processes"`` if the job is over that bound, else ``""``.

        Args:
            stop: asked now and then; if it holds, looking ends without a result.
        """
        found = below(self.pid)
        if self.processes and sum(_threads(pid) for pid in found) > self.processes:
            return "processes"
        if self.memory_bytes and not stop() and self._takes_too_much(found, stop):
            return "memory"
        return ""

    def _takes_too_much(self, found: list[int], stop: Callable[[], bool]) -> bool:
        sizes = {}
        for pid in found:
            if stop():
                return False
            sizes[pid] = _fields(f"/proc/{pid}/status", "RssAnon:", "RssShmem:")
        own, shared = (sum(size[part] for size in sizes.values()) for part in (0, 1))
        files = _files(found)
        # what forked processes share counts for each of them here, so a sum over the bound is only a reason to look
        if own + max(shared, files) <= self.memory_bytes:
            return False
        if _available() < _LITTLE:
            return True
        # the exact figure waits for each process to let go of its memory map, too long where many compete for the cores
        if sum(map(_runs, found)) > 4 * (os.cpu_count() or 1):
            return False
        return self._proportional(sorted(found, key=lambda pid: sum(sizes[pid]), reverse=True), files, stop)

    def _proportional(self, pids: list[int], files: int, stop: Callable[[], bool]) -> bool:
        """Whether it is over the bound too where what several processes share is divided among them."""
        own = shared = 0
        for pid in pids:
            if stop():
                return False
            more = _fields(f"/proc/{pid}/smaps_rollup", "Pss_Anon:", "Pss_Shmem:")
            own, shared = own + more[0], shared + more[1]
            if own + max(shared, files) > self.memory_bytes:
                return True
        return False


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


def _available() -> float:
    """The share of this machine's memory that is available."""
    total, available = _fields("/proc/meminfo", "MemTotal:", "MemAvailable:")
    return available / total if total else 1.0


def _runs(pid: int) -> bool:
    """Whether a process has something to do now."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] == b"R"
    return False


def _fields(path: str, *names: str) -> list[int]:
    """Bytes from lines of a file of the kernel, 0 for a line that is not there."""
    values = dict.fromkeys(names, 0)
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as lines:
        for line in lines:
            parts = line.split(None, 2)
            if parts and parts[0] in values:
                values[parts[0]] = int(parts[1]) << 10
    return list(values.values())
