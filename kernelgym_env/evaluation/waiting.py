"""How long a process worked on an answer, without the time in which others had the processors, by the kernel's account.

A busy machine lets one of two processes wait for milliseconds and not the other, for as long as a measurement takes, or
keeps waiting whoever reads the answer. That is nothing of what they do, and the kernel counts it for each thread. But a
process can make threads wait, by helpers that take all processors and do its work meanwhile. So what its other threads
and children ran is taken off; where children come and go, whose time is told in steps of ten milliseconds, nothing
counts as waited; and what its own thread ran counts in any case.

- `Usage`, `usage` -- what the kernel has counted of some processes.
- `waited_ns` -- the same of the calling thread's wait.
- `spent_s` -- the time that is left.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Usage", "spent_s", "usage", "waited_ns"]

_REAPED = slice(13, 15)  # of the fields behind the name: user and system time of children that have been waited for


@dataclass(frozen=True)
class Usage:
    """Counts of processes that stand still.

    Attributes:
        waited_ns: nanoseconds for which the main thread could have run and did not.
        main_ns: nanoseconds for which it ran.
        all_ns: nanoseconds for which all threads of all processes ran, those that have ended included.
        reaped: ticks of children that have ended.
        pids: the processes.
    """

    waited_ns: int
    main_ns: int
    all_ns: int
    reaped: int
    pids: frozenset[int]


def usage(main: int, pids: Sequence[int]) -> Usage | None:
    """What has been counted so far.

    Args:
        main: the process whose main thread is asked about.
        pids: it and all others that may work for it.

    Returns:
        The counts; None where the kernel does not tell, or one of the processes has ended.
    """
    try:
        ran, waited = _schedule(f"/proc/{main}/task/{main}")
        reaped = 0
        for pid in pids:
            with open(f"/proc/{pid}/stat", "rb") as file:
                reaped += sum(map(int, file.read().rpartition(b")")[2].split()[_REAPED]))
        return Usage(waited, ran, sum(map(_process_ns, pids)), reaped, frozenset(pids))
    except (OSError, ValueError):
        return None


def waited_ns() -> int:
    """Nanoseconds for which the calling thread could have run and did not, 0 where the kernel does not tell."""
    try:
        return _schedule("/proc/thread-self")[1]
    except (OSError, ValueError):
        return 0


def _schedule(folder: str) -> tuple[int, int]:
    """Nanoseconds for which a thread ran, and for which it waited for a processor."""
    with open(f"{folder}/schedstat", encoding="ascii") as file:
        ran, waited = file.read().split()[:2]
    return int(ran), int(waited)


def _process_ns(pid: int) -> int:
    """Processor time of a process and of all the threads it ever had, by its clock (see clock_getcpuclockid(3))."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def spent_s(wall_s: float, asker_waited_ns: int, before: Usage | None, after: Usage | None) -> float:
    """Seconds in which a process was at work on an answer, or slept, rather than waiting for a processor.

    Args:
        wall_s: from when it could begin until its answer was read.
        asker_waited_ns: for how long whoever read it waited meanwhile.
        before: its counts at the beginning.
        after: at the end.

    >>> ours = frozenset([7])
    >>> start = Usage(0, 0, 0, 0, ours)
    >>> spent_s(0.010, 1_000_000, start, Usage(6_000_000, 2_000_000, 4_000_000, 0, ours))
    0.005
    >>> spent_s(0.010, 9_000_000, start, Usage(6_000_000, 2_000_000, 2_000_000, 0, ours))
    0.002
    >>> spent_s(0.010, 1_000_000, start, Usage(6_000_000, 2_000_000, 4_000_000, 1, ours))
    0.01
    """
    if before is None or after is None or before.pids != after.pids or before.reaped != after.reaped:
        return wall_s
    ran = after.main_ns - before.main_ns
    helped = max(0, after.all_ns - before.all_ns - ran)
    waited = max(0, after.waited_ns - before.waited_ns + asker_waited_ns - helped)
    return min(wall_s, max(wall_s - waited * 1e-9, ran * 1e-9))
