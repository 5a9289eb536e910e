"""What calls take by the judge's own clock: a bound on what a candidate may report.

Times are read beside the submission's code, which may tamper with the clock. From outside only whole commands can be
timed, message and all, so a single short call cannot be told from the message. But many can: the slope between two
batches of calls is a call's time without the message. And one call on inputs that were never seen before, less what an
empty command takes, is a bound for whoever has kept the results of a batch.

Both leave the caches warm, so an honest cold call takes longer than they say.

- `outside_us` -- microseconds that a call takes at the least.
- `overstated` -- by what factor a reported time falls short of it.
"""

from __future__ import annotations

import statistics
import time

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
_SLOPES = 5
_SINGLES = 8
_LONG_S = 0.25


def outside_us(judging: Judging, worker: Worker, contents: Contents, reference: Reference) -> float:
    """Microseconds that a call of the worker's model takes at the least, by this process's clock.

    Raises:
        WorkerEnded: if the worker does not answer in time.
        Outcome: if a call raises.
    """

    def seconds(calls: int) -> float:
        start = time.perf_counter()
        judging.command(worker, {"op": "batch", "calls": calls}, judging.protocol.deadlines.run_s)
        return time.perf_counter() - start

    def fresh() -> float:
        judging.present(worker, contents.mixed(), reference)
        return seconds(1)

    once = fresh()
    if once > _LONG_S:
        return min(once, fresh()) * 1e6
    nothing = statistics.median(seconds(0) for _ in range(_SINGLES))
    single = min(fresh() for _ in range(_SINGLES)) - nothing
    calls = 1
    while seconds(calls) < _BATCH_S and calls < _MOST_CALLS:
        calls *= 2
    # what else runs on the machine only makes a batch longer, so the least slope is nearest to the truth
    slope = min((_later(seconds(3 * calls), seconds(calls))) / (2 * calls) for _ in range(_SLOPES))
    return max(single, slope, 0.0) * 1e6


def _later(long: float, short: float) -> float:
    return max(0.0, long - short)


def overstated(reported_us: float, outside: float) -> float:
    """Factor by which a speed is overstated, at least 1.

    >>> overstated(10.0, 40.0), overstated(50.0, 40.0)
    (4.0, 1.0)
    """
    return max(1.0, outside / reported_us)
