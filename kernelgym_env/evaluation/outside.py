"""What calls take by a clock that a candidate cannot reach: a bound on what it may report.

Times are read beside the submission's code, which may tamper with the clock.

On a CPU, the operating system counts for itself how long each thread has run, and no process can change that. A call
lasts at least as long as the thread that makes it runs meanwhile. What else runs on the machine makes calls longer, but
not that count, so an honest time is never below it.

On a GPU, nobody keeps such an account of one process, so the judge's own wall clock is read around commands that end
when the device is idle. The device is kept waiting while calls are launched, so that the host's time does not count.

Handling a command takes time too, so a single short call cannot be told from it. But many can: the slope between two
batches of calls is a call's time alone. And one call on inputs that were never seen before, less what an empty command
takes, is a bound for whoever has kept the results of a batch; its output is compared, so the work cannot be left out.

A submission may also compute where nobody measures: when its output is looked at, or on the way to its answer. So the
judge's wall clock is read around each command that is timed, too, and what it shows beyond the reported times is held
against the same of the reference's own process, which does the like: all of it together, and call by call, since times
that are wrong in some calls only can move a speedup and no median.

- `outside_us` -- microseconds that a call takes at the least.
- `hidden_us` -- microseconds of a call that were not reported.
- `supported` -- the speedup that is left where each call takes what the judge's clock shows of it.
- `overstated` -- by what factor a reported time falls short of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.judging import Judging
from kernelgym_env.evaluation.owed import Answer, Owed
from kernelgym_env.evaluation.reference import Reference
from kernelgym_env.evaluation.statistics import bootstrap_median, pair_ratio
from kernelgym_env.evaluation.workers import Worker

__all__ = ["DISAGREE", "TAMPERED", "hidden_us", "outside_us", "overstated", "supported"]

DISAGREE = 1.25
"""Factor from which on the slower figure counts."""

TAMPERED = 2.0
"""Factor which, twice in a row, no honest clock shows."""

_BATCH_S = 0.01
_MOST_CALLS = 4096
_REPEATS = 6
_LONG_S = 0.5

_QUEUED = 64
"""Calls in the shorter of two batches on a GPU, at most: what is launched ahead has a limit."""

_FEW = 4
_CYCLES_PER_S = 2e9
_QUANTILES = (0.5, 0.2)
_USUAL = {"cpu": 0.7, "cuda": 0.9}
"""Share of the twin's commands that show no more than what is left out of account in a single call.

On a CPU a command is a call, and one in ten honest ones waits for milliseconds until a core is free. Were that the
measure, each call of a candidate could hide as much."""

_HONEST_US = {"cpu": 50.0, "cuda": 150.0}
_SLACK_S = {"slope": 3e-6, "single": 50e-6}
"""What a GPU's call may seem to take longer from outside: a launch after the other, and the way to the device's end."""


def outside_us(
    judging: Judging, worker: Worker, contents: Contents, reference: Reference, owed: Owed, reported_us: float
) -> float:
    """Microseconds that a call of the worker's model takes at the least, by a clock that it cannot reach.

    Of several measurements the least counts; none follows once one of them agrees with what was reported.

    Args:
        judging: the evaluation.
        worker: the process.
        contents: makes the inputs.
        reference: delivers them.
        owed: gets the answer to one call on new inputs, to be compared.
        reported_us: what the worker reported.

    Raises:
        WorkerEnded: if the worker does not answer in time.
        Outcome: if a call raises.
    """
    enough = reported_us * DISAGREE * 1e-6
    bound = _thread_s if judging.device == "cpu" else _device_s
    # a reference that overwrites its inputs is called once on each
    fresh = _Fresh(judging, worker, contents, reference, owed)
    seconds = bound(_Batches(judging, worker), fresh, enough, reference.mutates)
    return max(seconds, 0.0) * 1e6


class _Fresh:
    """Inputs that the worker has never seen, and what it computed on them."""

    def __init__(self, judging: Judging, worker: Worker, contents: Contents, reference: Reference, owed: Owed) -> None:
        self._judging = judging
        self._worker = worker
        self._contents = contents
        self._reference = reference
        self._owed = owed
        self._case = contents.case

    def give(self) -> None:
        """Write new inputs."""
        self._case = self._contents.mixed()
        self._judging.buffers["out"].bytes[: self._reference.out_size].fill_(0xFF)
        self._judging.present(self._worker, self._case, self._reference)

    def check(self) -> None:
        """Have what the worker's last call gave compared.

        Raises:
            Outcome: if it raised.
        """
        message = {"op": "last", "out": self._reference.out_tree}
        answer = self._judging.command(self._worker, message, self._judging.protocol.deadlines.run_s)
        lying = self._judging.buffers["out"].bytes[: self._reference.out_size].clone()
        case = self._case
        self._owed.insist(Answer(answer, lying, lambda: case))


class _Batches:
    """Batches of calls, timed from outside."""

    def __init__(self, judging: Judging, worker: Worker) -> None:
        self._judging = judging
        self._worker = worker
        self._below = processes.descendants(worker.pid) if judging.device == "cpu" else []

    def _run(self, calls: int, wait_s: float = 0.0) -> None:
        message = {"op": "batch", "calls": calls, "wait": int(wait_s * _CYCLES_PER_S)}
        self._judging.command(self._worker, message, self._judging.protocol.deadlines.run_s)

    def ran_s(self, calls: int) -> float:
        """Seconds that the worker's main thread ran meanwhile."""
        before = [processes.ran_s(pid) for pid in self._below]
        self._run(calls)
        # the candidate's own process is the one of them that did something
        return max((processes.ran_s(pid) - ran for pid, ran in zip(self._below, before, strict=True)), default=0.0)

    def wall_s(self, calls: int, wait_s: float = 0.0) -> float:
        """Wall seconds until the device was idle."""
        start = time.perf_counter()
        self._run(calls, wait_s)
        return time.perf_counter() - start


def _thread_s(batches: _Batches, fresh: _Fresh, enough: float, single: bool) -> float:
    """Seconds of a call by the kernel's account of the main thread."""
    seconds = batches.ran_s

    def after_new(calls: int) -> float:
        fresh.give()  # which leaves caches behind in which a command takes longer, with calls or without
        return seconds(calls)

    def one() -> float:
        return after_new(1) - nothing

    def slope() -> float:
        return (seconds(3 * calls) - seconds(calls)) / (2 * calls)

    nothing = statistics.median(after_new(0) for _ in range(_REPEATS))
    bound = _least(one, enough)
    fresh.check()  # of the last one, which nobody knew to be the last; between them it would leave cold caches behind
    if single:
        return bound
    calls, limit = 1, min(_MOST_CALLS, max(1, int(_LONG_S / max(bound, 1e-9))))
    while calls < limit and seconds(calls) < _BATCH_S:
        calls = min(2 * calls, limit)
    return max(bound, _least(slope, enough))


def _device_s(batches: _Batches, fresh: _Fresh, enough: float, single: bool) -> float:
    """Seconds of a call on the device by the judge's wall clock, less what an honest call may seem to take longer."""
    fresh.give()
    batches.wall_s(1)
    fresh.give()
    few = 1 if single else _FEW
    host = batches.wall_s(few) / few  # to launch a call, or to compute it where that takes longer
    ahead = min(2 * host, _BATCH_S)

    def after_new(calls: int) -> float:
        fresh.give()  # what the device does after another process used it takes longer, with calls or without
        return batches.wall_s(calls, ahead)

    def one() -> float:
        return after_new(1) - nothing

    def slope() -> float:
        wait_s = min(4 * calls * host, _LONG_S)
        return (batches.wall_s(3 * calls, wait_s) - batches.wall_s(calls, wait_s)) / (2 * calls)

    nothing = statistics.median(after_new(0) for _ in range(_REPEATS))
    bound = _least(one, enough + _SLACK_S["single"]) - _SLACK_S["single"]
    fresh.check()
    if single or host * _FEW > _BATCH_S:
        return bound  # long enough for a single one to tell, where others are possible
    calls = max(_FEW, min(_QUEUED, int(_BATCH_S / host)))
    return max(bound, _least(slope, enough + _SLACK_S["slope"]) - _SLACK_S["slope"])


def _least(measure: Callable[[], float], enough: float) -> float:
    """The least of some measurements; the first one that is at most `enough` is the last one."""
    least = measure()
    for _ in range(_REPEATS - 1):
        if least <= enough:
            break
        least = min(least, measure())
    return least


def hidden_us(candidate: Sequence[float], twin: Sequence[float], *, on_cpu: bool) -> float:
    """Microseconds a call by which commands took longer than what was reported, beyond what honest ones take.

    It is the least that the 95% intervals of both sides' medians leave, less what may differ between two honest
    processes; or what those of their lower quantiles leave, if it is more: what else runs on the machine makes some
    commands longer, work that is hidden in all of them makes all longer.

    Args:
        candidate: of each command, wall time less reported time, a call, in microseconds.
        twin: the same of the reference's process.
        on_cpu: whether the calls ran on a CPU. On a GPU launching may go on while the cache is being emptied.

    >>> hidden_us([1000.0] * 9, [200.0] * 9, on_cpu=True)
    750.0
    >>> hidden_us([210.0] * 9, [200.0] * 9, on_cpu=True)
    0.0
    """
    honest = _HONEST_US["cpu" if on_cpu else "cuda"]

    def beyond(quantile: float) -> float:
        _, low, _ = bootstrap_median(candidate, quantile=quantile)
        _, _, high = bootstrap_median(twin, quantile=quantile)
        return low - high - honest

    return max(0.0, *map(beyond, _QUANTILES))


def supported(
    reference: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    beyond: Sequence[float],
    twin: Sequence[float],
    *,
    on_cpu: bool,
) -> float:
    """The speedup where each call takes what its command's wall time leaves unexplained, too.

    Left out of account is as much as most of the twin's commands leave, and what honest processes may differ in.

    Args:
        reference: times per call by block, in microseconds, shape [blocks][calls].
        candidate: the same for the candidate, as reported.
        beyond: as `hidden_us` takes it, of each call, or of each block where one command makes all its calls.
        twin: the same of the reference's process.
        on_cpu: whether the calls ran on a CPU.

    >>> supported([[900.0]] * 8, [[900.0], [100.0]] * 4, [200.0, 1000.0] * 4, [200.0] * 8, on_cpu=True) < 1.1
    True
    """
    kind = "cpu" if on_cpu else "cuda"
    _, _, most = bootstrap_median(twin, quantile=_USUAL[kind])
    most += _HONEST_US[kind]

    def whole(blocks: Sequence[Sequence[float]], hidden: Sequence[float]) -> list[list[float]]:
        by_block = len(hidden) == len(blocks)
        rest = iter([value for value, block in zip(hidden, blocks, strict=True) for _ in block] if by_block else hidden)
        return [[value + max(0.0, next(rest) - most) for value in block] for block in blocks]

    # both sides, since an honest one is held up as often as the other
    return pair_ratio(whole(reference, twin), whole(candidate, beyond))[0]


def overstated(reported_us: float, outside: float) -> float:
    """Factor by which a speed is overstated, at least 1.

    >>> overstated(10.0, 40.0), overstated(50.0, 40.0)
    (4.0, 1.0)
    """
    return max(1.0, outside / reported_us)
