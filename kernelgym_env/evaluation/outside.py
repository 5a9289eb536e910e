"""What calls take by the kernel's account: a bound on what a candidate may report.

Times are read beside the submission's code, which may tamper with the clock. The operating system counts for itself how
long each thread has run, and no process can change that. A call lasts at least as long as the thread that makes it runs
meanwhile. What else runs on the machine makes calls longer, but not that count, so an honest time is never below it.

Handling a command takes time too, so a single short call cannot be told from it. But many can: the slope between two
batches of calls is a call's time alone. And one call on inputs that were never seen before, less what an empty command
takes, is a bound for whoever has kept the results of a batch.

- `outside_us` -- microseconds that a call takes at the least.
- `overstated` -- by what factor a reported time falls short of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.judging import Judging
from kernelgym_env.evaluation.reference import Reference
from kernelgym_env.evaluation.workers import Worker

__all__ = ["DISAGREE", "TAMPERED", "outside_us", "overstated"]

DISAGREE = 1.25
"""Factor from which on the slower figure counts."""

TAMPERED = 2.0
"""Factor which, twice in a row, no honest clock shows."""

_BATCH_S = 0.01
_MOST_CALLS = 4096
_REPEATS = 6
_LONG_S = 0.5


def outside_us(judging: Judging, worker: Worker, contents: Contents, reference: Reference, reported_us: float) -> float:
    """Microseconds that a call of the worker's model takes at the least, by the kernel's account of its main thread.

    Of several measurements the least counts; none follows once one of them agrees with what was reported.

    Args:
        judging: the evaluation.
        worker: the process.
        contents: makes the inputs.
        reference: delivers them.
        reported_us: what the worker reported.

    Raises:
        WorkerEnded: if the worker does not answer in time.
        Outcome: if a call raises.
    """
    below = processes.descendants(worker.pid)

    def seconds(calls: int) -> float:
        before = [processes.ran_s(pid) for pid in below]
        judging.command(worker, {"op": "batch", "calls": calls}, judging.protocol.deadlines.run_s)
        # the candidate's own process is the one of them that did something
        return max((processes.ran_s(pid) - ran for pid, ran in zip(below, before, strict=True)), default=0.0)

    def single() -> float:
        judging.present(worker, contents.mixed(), reference)
        return seconds(1) - nothing

    def slope() -> float:
        return (seconds(3 * calls) - seconds(calls)) / (2 * calls)

    enough = reported_us * DISAGREE * 1e-6
    nothing = statistics.median(seconds(0) for _ in range(_REPEATS))
    bound = _least(single, enough)
    calls, limit = 1, min(_MOST_CALLS, max(1, int(_LONG_S / max(bound, 1e-9))))
    while calls < limit and seconds(calls) < _BATCH_S:
        calls = min(2 * calls, limit)
    return max(bound, _least(slope, enough), 0.0) * 1e6


def _least(measure: Callable[[], float], enough: float) -> float:
    """The least of some measurements; the first one that is at most `enough` is the last one."""
    least = measure()
    for _ in range(_REPEATS - 1):
        if least <= enough:
            break
        least = min(least, measure())
    return least


def overstated(reported_us: float, outside: float) -> float:
    """Factor by which a speed is overstated, at least 1.

    >>> overstated(10.0, 40.0), overstated(50.0, 40.0)
    (4.0, 1.0)
    """
    return max(1.0, outside / reported_us)
