"""The timing step: the candidate and the reference's twin in like processes, on like inputs, under a lock.

While the twin is timed, the candidate and all it started stand still: nothing of it can use the cores, the inputs or
the memory. The twin's results are never written where the candidate could read them.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.baselines import Baseline
from kernelgym_env.evaluation.buffers import leaves
from kernelgym_env.evaluation.checking import send_weights
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.feedback import without_values
from kernelgym_env.evaluation.judging import FLUSH_PLACES, FLUSH_STEP, Judging, Outcome, flushed
from kernelgym_env.evaluation.measure import Given, Side, measure
from kernelgym_env.evaluation.neighbours import compare, look
from kernelgym_env.evaluation.outside import DISAGREE, hidden_us, outside_us, overstated, supported
from kernelgym_env.evaluation.owed import Answer, Owed
from kernelgym_env.evaluation.reference import Case, Reference, TaskError
from kernelgym_env.evaluation.statistics import rerun_interval, timing
from kernelgym_env.evaluation.timing_rules import reported, timing_rule
from kernelgym_env.evaluation.workers import Worker, WorkerEnded, ending, judges

__all__ = ["measure_way", "prepare", "resolved", "time_both"]

_NEAR = 0.5
_UNRESOLVED = 0.5
_RUN_IN_CALLS, _RUN_IN_S = (1, 4, 45), 0.5
_KEPT_SHARE, _KEPT_BYTES, _KEPT_LEAVES = 32, 2 << 30, 4096
_PLACES = 16
_MOST_EXCESS_US = 0.25
_MOVED_BYTES, _HELD_BYTES = 1 << 30, 4 << 30
_RUN_TO_RUN = {"cuda_event": (0.0015, 0.06), "perf_counter": (0.02, 2.0)}
"""Standard deviation of a ratio between processes: a share of it, and microseconds a call. On a GPU by A/A on an H200
(`benchmarks/timing.py`), on a CPU assumed, and not measured."""
_PROBLEM_CHARS = 500


@dataclass(frozen=True)
class _Way:
    """How calls are timed on a device.

    Attributes:
        clock: name of the clock.
        command: the ``time`` command but for what changes from block to block.
        each: new inputs before each call instead of each block, written when the worker is ready to call.
        places: how many outputs are kept, so how many calls there may be at once.
        flush: what the judge overwrites before each call on a CPU, while everybody else stands still: nothing that a
            candidate does meanwhile gets ahead of the clock.
    """

    clock: str
    command: dict[str, Any]
    each: bool
    places: int
    flush: torch.Tensor | None

    @classmethod
    def of(cls, judging: Judging, reference: Reference) -> _Way:
        protocol, step = judging.protocol, reference.out_size
        command = {"op": "time", "out": reference.out_tree, "step": step, **flushed(protocol)}
        if judging.device == "cpu":
            return cls("perf_counter", command, True, 1, torch.empty(protocol.flush_cpu_mib << 20, dtype=torch.uint8))
        kept = min(_KEPT_BYTES, torch.cuda.get_device_properties(judging.device).total_memory // _KEPT_SHARE)
        fit = min(kept // max(1, step), _KEPT_LEAVES // max(1, len(leaves(reference.out_tree))))
        return cls("cuda_event", command, False, max(1, min(fit, protocol.max_block_calls)), None)

    def most_calls(self, reference: Reference) -> int:
        """Greatest number of calls in a block; one for a reference that overwrites its inputs."""
        if reference.mutates:
            return 1
        return sys.maxsize if self.each else self.places

    def take_places(self, judging: Judging, places: int, candidate: Worker | None, *trusted: Worker) -> None:
        """Give all memory for what so many calls return. Other judges need it too, so it is taken for as long as one
        measures, and behind that for one call.
        """
        step = self.command["step"]
        if candidate is not None:
            judging.take_outputs([candidate], places, step, trusted=False)
        with _trusted() if candidate is not None else nullcontext():
            judging.take_outputs(trusted, places, step, trusted=True)


def prepare(judging: Judging, twin: Worker, contents: Contents, reference: Reference) -> None:
    """Give both sides what they compute on, and let them run in.

    Args:
        judging: the evaluation.
        twin: the reference's process, loading or loaded.
        contents: makes the inputs.
        reference: the trusted side.

    Raises:
        TaskError: if the reference takes longer than a stage may.
        RuntimeError: if the reference's process fails.
    """
    candidate = judging.candidate
    assert candidate is not None
    judging.give_way()
    with judging.stages.time("start"):
        with _trusted():
            _ready(judging, twin, contents, reference, judging.protocol.deadlines.import_s)
            _run_in(judging, twin, contents, reference)
        judging.give_way()
        judging.present(candidate, contents.case, reference)
        _run_in(judging, candidate, contents, reference)


def _run_in(judging: Judging, worker: Worker, contents: Contents, reference: Reference) -> None:
    """Make some calls, so that both sides have made many: code, too, is slower at first."""
    start = time.perf_counter()
    for calls in (1,) * len(_RUN_IN_CALLS) if reference.mutates else _RUN_IN_CALLS:
        if reference.mutates:  # what a call left behind may be no input
            judging.present(worker, contents.case, reference)
        judging.command(worker, {"op": "batch", "calls": calls, "wait": 0}, judging.protocol.deadlines.run_s)
        if (time.perf_counter() - start) * max(_RUN_IN_CALLS) > _RUN_IN_S:
            return


def time_both(judging: Judging, twin: Worker, contents: Contents, reference: Reference, rng: random.Random) -> float:
    """Measure the speedup between two sides that `prepare` has made ready; fills `judging.figures`.

    Args:
        judging: the evaluation.
        twin: the reference's process.
        contents: makes the inputs.
        reference: the trusted side.
        rng: draws the order of blocks; seeded from the secret.

    Returns:
        By what factor the clock inside of the candidate's process falls short of the one outside; 1 where they agree.
        The figures are by the slower one.

    Raises:
        Outcome: if a timed call gives a wrong output or an error.
        TaskError: if the reference takes longer than a stage may.
        RuntimeError: if the reference's process fails, or another process used the device meanwhile; neither is a fault
            of the submission's.
        TimeoutError: if the device is held by others for too long.
    """
    candidate = judging.candidate
    assert candidate is not None
    way = _Way.of(judging, reference)
    inputs = _Inputs(judging, reference, contents, way, rng)
    owed = inputs.owed()
    places = _Places(rng, 0 if judging.device == "cpu" or reference.mutates else reference.out_size)
    more, less = _excess_us(candidate, twin)
    warm = not reference.mutates
    mine = Side(
        candidate, way.command, inputs.for_candidate(candidate, owed), places, late=way.each, warm=warm, excess_us=more
    )
    theirs = _Twin(twin, way.command, inputs.for_twin(twin), places, late=way.each, warm=warm, excess_us=less)
    # what stands still while inputs are written, caches emptied and the other side timed cannot work ahead
    with candidate.still(), twin.still():
        asked = time.perf_counter()
        with judging.alone():
            began = time.perf_counter()
            judging.stages.current = "timing"
            most = way.most_calls(reference)
            way.take_places(judging, way.places, candidate, twin)
            with _looked_at(judging):
                result = measure(
                    mine, theirs, judging.protocol, rng, most_calls=most, each=way.each, between=owed.between
                )
            reported_us = statistics.median(value for block in mine.blocks for value in block)
            factor = _clock_factor(judging, candidate, inputs, owed, reported_us)
            way.take_places(judging, 1, candidate, twin)
            ended = time.perf_counter()
        judging.stages.add("timing", ended - began)
        judging.stages.add("queue", began - asked + time.perf_counter() - ended)
        with judging.stages.time("correctness"):
            owed.settle(ended - began)
    factor = max(factor, _hidden_factor(judging, mine, theirs, reported_us, result.speedup))
    slower = [[value * factor for value in block] for block in mine.blocks]
    share, micro = _RUN_TO_RUN[way.clock]
    between = math.hypot(share, micro / reported_us)
    low, high = rerun_interval(result.speedup, result.low, result.high, between)
    unresolved = not resolved(result.speedup, result.low, result.high)
    counts = low if unresolved else result.speedup  # what a busy machine makes of it is not to be paid for
    judging.figures = {
        "unresolved": unresolved,
        "speedup": counts / factor,
        "speedup_low": low / factor,
        "speedup_high": high / factor,
        "times": {
            "candidate": timing(slower, way.clock if factor == 1 else "outside"),
            "eager": timing(theirs.blocks, way.clock),
        },
    }
    judging.reported = reported(theirs.blocks, slower, timing_rule(judging.protocol.name)).to_dict()
    return factor


@contextmanager
def _looked_at(judging: Judging) -> Iterator[None]:
    """Look at a GPU before and after, for what else used it and what its clocks did; see `neighbours`.

    Raises:
        RuntimeError: if another process used it so much that no time is worth anything.
    """
    if judging.device == "cpu":
        yield
        return
    uuid = str(torch.cuda.get_device_properties(judging.device).uuid)
    before = look(uuid, _ours())
    yield
    both = compare(before, look(uuid, _ours(), since_us=before.taken_us))
    judging.neighbours = both.to_dict()
    if both.worthless:
        raise RuntimeError(both.worthless)


def _ours() -> set[int]:
    """Processes that are no neighbours: this judge's, and other judges', which keep quiet while one times.

    Those that judges have just ended are among them: the driver counts what they did before.
    """
    own = {os.getpid(), *judges()}
    return own | set(processes.descendants(*own)) | set(ending())


def _excess_us(one: Worker, other: Worker) -> tuple[float, float]:
    """Microseconds by which launching takes longer in one process than in both on the average; the same of the other.

    It is nothing of the submission's, and makes a difference of a percent to calls of 20 us. Zeros on a CPU.
    """
    half = (one.launch_us - other.launch_us) / 2
    if math.isnan(half):
        return 0.0, 0.0
    half = max(-_MOST_EXCESS_US, min(_MOST_EXCESS_US, half))  # more is no property of a process, but a disturbance
    return half, -half


def resolved(speedup: float, low: float, high: float) -> bool:
    """Whether repeats in the same processes agree so far that the speedup says something.

    >>> resolved(2.0, 1.9, 2.1), resolved(8.0, 0.5, 16.0)
    (True, False)
    """
    return (high - low) / 2 <= _UNRESOLVED * speedup


def measure_way(
    judging: Judging,
    worker: Worker,
    twin: Worker,
    contents: Contents,
    reference: Reference,
    rng: random.Random,
) -> Baseline:
    """Hold another way of running the reference against the eager one, while the candidate stands still.

    Args:
        judging: the evaluation, in which `time_both` is done.
        worker: the process that runs the other way, loading or loaded.
        twin: the eager reference's process.
        contents: makes the inputs.
        reference: delivers them.
        rng: draws the order of blocks.

    Returns:
        What was measured, or why the way does not work for the task.
    """
    candidate = judging.candidate
    assert candidate is not None
    protocol, way = judging.protocol, _Way.of(judging, reference)
    inputs = _Inputs(judging, reference, contents, way, rng)
    judging.quiet.enter()  # another way may have failed while it was timed
    with candidate.still():
        try:
            _ready(judging, worker, contents, reference, protocol.deadlines.import_s)
            # it compiles, or records, at its first call
            judging.command(worker, {"op": "batch", "calls": 1, "wait": 0}, protocol.deadlines.build_s)
            _run_in(judging, worker, contents, reference)
            ours, theirs = (
                Side(side, way.command, inputs.for_twin(side), late=way.each, warm=not reference.mutates, excess_us=us)
                for side, us in zip((worker, twin), _excess_us(worker, twin), strict=True)
            )
            with worker.still(), twin.still(), judging.alone():
                most = way.most_calls(reference)
                way.take_places(judging, way.places, None, twin, worker)
                result = measure(ours, theirs, protocol, rng, most_calls=most, each=way.each, between=lambda: None)
                way.take_places(judging, 1, None, twin, worker)
        except RuntimeError as problem:
            return Baseline(problem=str(problem)[:_PROBLEM_CHARS])
        except WorkerEnded as ended:
            return Baseline(problem=ended.detail[:_PROBLEM_CHARS], lasting=False)
        except Outcome as outcome:
            return Baseline(problem=without_values(outcome.detail)[:_PROBLEM_CHARS])
    return Baseline(result.speedup, times=timing(ours.blocks, way.clock))


def _ready(judging: Judging, worker: Worker, contents: Contents, reference: Reference, seconds: float) -> None:
    """Wait for a process of the reference, and give it what it computes on.

    Raises:
        RuntimeError: if the reference does not load there.
    """
    answer = worker.wait(seconds, judging.give_way)
    if "error" in answer:
        raise RuntimeError(f"the reference's own process failed: {answer['error']['message'][:_PROBLEM_CHARS]}")
    judging.attach(worker, ("in", "other", "weights"))
    send_weights(judging, worker, reference, {name: name for name in reference.weight_leaves})
    judging.present(worker, contents.case, reference)


def _clock_factor(judging: Judging, worker: Worker, inputs: _Inputs, owed: Owed, reported_us: float) -> float:
    """Factor by which the candidate's own clock overstates its speed by one outside of it; 1 where both agree."""
    factor = 1.0
    for _ in range(2):
        outside = outside_us(judging, worker, inputs.contents, inputs.reference, owed, reported_us)
        found = overstated(reported_us, outside)
        if found <= DISAGREE:
            return 1.0
        factor = min(factor, found) if factor > 1 else found
    return factor


def _hidden_factor(judging: Judging, side: Side, twin: Side, reported_us: float, speedup: float) -> float:
    """Factor by which the candidate's speed is overstated by what commands took beyond reported times; 1 for little."""
    on_cpu = judging.device == "cpu"
    hidden = hidden_us(side.beyond_us, twin.beyond_us, on_cpu=on_cpu)
    left = supported(twin.blocks, side.blocks, side.beyond_us, twin.beyond_us, on_cpu=on_cpu)
    judging.beyond_us = {
        "candidate": statistics.median(side.beyond_us),
        "reference": statistics.median(twin.beyond_us),
        "hidden": hidden,
        "supported": left,
    }
    # the latter are times that are wrong in a part of the calls
    factor = max(overstated(reported_us, reported_us + hidden), overstated(left, speedup))
    return factor if factor > DISAGREE else 1.0


@contextmanager
def _trusted() -> Iterator[None]:
    """What goes wrong inside is not booked on the submission."""
    try:
        yield
    except WorkerEnded as ended:
        if ended.kind == "timeout":
            raise TaskError(f"the reference does not finish in time: {ended.detail}") from ended
        raise RuntimeError(f"the reference's own process ended: {ended.detail}") from ended
    except Outcome as outcome:
        raise RuntimeError(f"the reference's own process failed: {outcome.detail[:500]}") from outcome


class _Twin(Side):
    """The reference's side."""

    def time(self, calls: int, seconds: float) -> list[float]:
        with _trusted():
            return super().time(calls, seconds)


class _Places:
    """Draws where memory lies during a block: what calls return, and what is overwritten to empty the cache.

    Where it lies makes a difference that no repeating takes away: a constant one between two processes.
    """

    def __init__(self, rng: random.Random, size: int) -> None:
        self._rng = rng
        self._size = size if size <= _MOVED_BYTES else 0
        self._most = min(_PLACES, _HELD_BYTES // max(1, self._size))

    def __call__(self) -> dict[str, Any]:
        held = [self._size] * self._rng.randrange(self._most) if self._size else []
        return {"moved": held, "flush_at": self._rng.randrange(FLUSH_PLACES) * FLUSH_STEP}


class _Inputs:
    """What each side gets before its calls, and what becomes of the answers."""

    def __init__(
        self,
        judging: Judging,
        reference: Reference,
        contents: Contents,
        way: _Way,
        rng: random.Random,
    ) -> None:
        self.judging = judging
        self.reference = reference
        self.contents = contents
        self.way = way
        self._rng = rng

    def owed(self) -> Owed:
        """What keeps answers, with room by the size of what a command needs."""
        sets = 2 if "other" in self.judging.buffers else 1
        held = 2 * self.reference.out_size + sets * self.judging.buffers["in"].size
        return Owed(self.judging, self.reference, held, self._rng)

    def for_candidate(self, candidate: Worker, owed: Owed) -> Callable[[int], Given]:
        """New contents, often nearly those of the call before; answers of some calls are to be compared.

        Which ones, nobody else knows.
        """

        def deliver(calls: int) -> Given:
            self.judging.buffers["out"].bytes.fill_(0xFF)
            swaps, write, at = self._contents(candidate, calls)

            def check(answer: dict[str, Any]) -> None:
                self.judging.refuse_error(answer)
                told = answer.get("outputs")
                if not isinstance(told, list) or len(told) != calls or not all(isinstance(one, dict) for one in told):
                    raise WorkerEnded("garbage", f"it did not describe {calls} outputs")
                owed.offer(partial(self._answers, told, at))

            return Given(swaps, write, check)

        return deliver

    def _answers(self, told: list[dict[str, Any]], at: Callable[[int], Case]) -> list[Answer]:
        """Those of two calls; the last call's is always there, as what earlier ones left behind may be in it."""
        step = self.way.command["step"]
        lying = self.judging.buffers["out"].bytes
        return [
            Answer(told[call], lying[call * step : (call + 1) * step].clone(), partial(at, call))
            for call in sorted({self._rng.randrange(len(told)), len(told) - 1})
        ]

    def for_twin(self, twin: Worker) -> Callable[[int], Given]:
        """New contents likewise; its answers are not looked at."""

        def deliver(calls: int) -> Given:
            swaps, write, _ = self._contents(twin, calls)
            return Given(swaps, write, self.judging.refuse_error)

        return deliver

    def _contents(self, worker: Worker, calls: int) -> tuple[list[Any], Callable[[], None], Callable[[int], Case]]:
        """What is exchanged between a worker's calls; what writes its inputs; what each call gets."""
        if "other" not in self.judging.buffers:
            case = self.contents.near() if self._rng.random() < _NEAR else self.contents.mixed()
            self.judging.announce(worker, case)
            return [[]] * calls, partial(self._write, worker, case), lambda _: case
        walk = self.contents.walk(calls)
        self.judging.announce(worker, walk.first)
        return walk.swaps, partial(self._write, worker, walk.first, walk.other), walk.at

    def _write(self, worker: Worker, case: Case, other: Case | None = None) -> None:
        if other is not None:
            self.reference.deliver(other, self.judging.views(other, "other"))
        self.judging.present(worker, case, self.reference)
        if self.way.flush is not None:
            self.way.flush.fill_(1)
