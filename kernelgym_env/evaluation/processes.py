"""Finding and ending processes, by `/proc` alone.

- `children`, `descendants` -- who is below a process.
- `children_of_thread`, `below` -- the same at a fraction of the cost, by the kernel's lists.
- `kill_descendants` -- SIGKILL all of them, again and again, until none is left or time is up.
- `ran_s` -- how long a process's main thread has run.
- `Halt` -- hold all of them still, again and again.
- `kill_user` -- SIGKILL everything that runs under a user id, all at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

__all__ = [
    "Halt",
    "below",
    "children",
    "children_of_thread",
    "descendants",
    "kill_descendants",
    "kill_user",
    "ran_s",
]


def _parents() -> dict[int, int]:
    """Parent by process id, of every process that is not a zombie."""
    table: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # ended while we looked
        if state != b"Z":
            table[int(entry)] = int(parent)
    return table


def children(pid: int) -> list[int]:
    """Living children of `pid`."""
    return [child for child, parent in _parents().items() if parent == pid]


def children_of_thread(pid: int, thread: int | None = None) -> list[int]:
    """Children that one thread of a process started, dead ones included; the main thread unless another is named."""
    try:
        return _listed(f"/proc/{pid}/task/{thread or pid}/children")
    except FileNotFoundError:  # the process is gone, or the kernel keeps no such lists
        return children(pid) if thread in (None, pid) else []
    except OSError:
        return []


def _listed(path: str) -> list[int]:
    """The process ids in a file of the kernel's; read for each command of a measurement, so it has to be quick."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while part := os.read(fd, 1 << 16):
            text += part
    finally:
        os.close(fd)
    return [int(pid) for pid in text.split()]


def below(pid: int) -> list[int]:
    """Every process below `pid`, nearest first, but for one whose sibling ended during the look.

    It goes by the kernel's lists of children, at a fraction of the cost of `descendants`.
    """
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in _children(parent)]
        found += level
    return found


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        return [child for thread in threads for child in children_of_thread(pid, thread)]
    return []


def descendants(*pids: int) -> list[int]:
    """Every living process below these, nearest first; all from one look."""
    table = _parents()
    found, level = [], list(pids)
    while level:
        level = [child for child, parent in table.items() if parent in level]
        found.extend(level)
    return found


def kill_descendants(pid: int, seconds: float) -> int:
    """Kill everything below `pid`.

    Where `pid` is a child-subreaper (or this process itself), a double-forked process is found too. If `pid` is this
    process, its dead children are reaped.

    Args:
        pid: the process whose descendants end; it goes on itself.
        seconds: how long to keep at it.

    Returns:
        How many processes were seen alive.
    """
    seen: set[int] = set()
    end = time.monotonic() + seconds
    alive: list[int] | None
    while True:
        try:
            alive = descendants(pid)
        except OSError:  # no descriptor or no memory to look with, for now
            alive = None
        seen.update(alive or ())
        for victim in alive or ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(victim, signal.SIGKILL)
        if pid == os.getpid():
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        if alive == [] or time.monotonic() > end:
            return len(seen)
        time.sleep(0.002)


def ran_s(pid: int) -> float:
    """Seconds for which the main thread of a process has run on a processor, 0 where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/task/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


class Halt:
    """Everything below a process, held still and let go again, without looking at the whole machine's processes.

    A process that may not be signalled goes on; one that ends is let go.

    Args:
        pid: the process above; it goes on itself.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._held: list[int] = []

    def hold(self) -> None:
        """Stop all of them, nearest first, also what is started meanwhile by one not yet held."""
        while new := [process for process in below(self._pid) if process not in self._held]:
            self._held += new
            for process in new:
                _signal(process, signal.SIGSTOP)

    def release(self) -> float:
        """Let all of them go on, nearest last.

        Returns:
            `time.perf_counter` just before the nearest ones could go on: with many processes the others take a while.
        """
        held, self._held = self._held, []
        for process in reversed(held[_NEAREST:]):
            _signal(process, signal.SIGCONT)
        start = time.perf_counter()
        for process in reversed(held[:_NEAREST]):
            _signal(process, signal.SIGCONT)
        return start


_NEAREST = 2  # the process that answers, and what may stand above it


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def kill_user(uid: int) -> None:
    """Kill every process of a user at once, so that none can start another one in between.

    Nothing is done where there is no room for the process that does it.

    Args:
        uid: a user id that this process, which must be root, does not have itself.
    """
    try:
        child = os.fork()
    except OSError:
        return
    if child == 0:
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)  # all that this user may signal, but for the caller
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
