"""The timing step: the candidate and the reference's twin in like processes, on like inputs, under a lock.

While the twin is timed, the candidate and all it started stand still: nothing of it can use the cores, the inputs or
the memory. The twin's results are never written where the candidate could read them.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.baselines import Baseline
from kernelgym_env.evaluation.checking import send_weights
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.feedback import without_values
from kernelgym_env.evaluation.judging import Judging, Outcome
from kernelgym_env.evaluation.measure import Side, measure
from kernelgym_env.evaluation.neighbours import compare, look
from kernelgym_env.evaluation.outside import DISAGREE, outside_us, overstated
from kernelgym_env.evaluation.reference import Case, Reference, TaskError
from kernelgym_env.evaluation.statistics import timing
from kernelgym_env.evaluation.timing_rules import reported, timing_rule
from kernelgym_env.evaluation.workers import Worker, WorkerEnded, judges

__all__ = ["measure_way", "time_both"]

_FEWEST_CHECKS = 3
_CHECKING_SHARE = 0.25
_PLACES = 4
_MOVED_BYTES = 1 << 30
_PROBLEM_CHARS = 500


@dataclass(frozen=True)
class _Way:
    """How calls are timed on a device.

    Attributes:
        clock: name of the clock.
        command: the ``time`` command but for what changes from block to block.
        each: new inputs before each call instead of each block.
    """

    clock: str
    command: dict[str, Any]
    each: bool

    @classmethod
    def of(cls, judging: Judging, contents: Contents) -> _Way:
        on_cpu = judging.device == "cpu"
        flush = judging.protocol.flush_cpu_mib if on_cpu else judging.protocol.flush_mib
        command = {"op": "time", "flush": flush << 20, "out": None}
        return cls("perf_counter" if on_cpu else "cuda_event", command, on_cpu and contents.varied)


def time_both(judging: Judging, twin: Worker, contents: Contents, reference: Reference, rng: random.Random) -> float:
    """Measure the speedup; fills `judging.figures`.

    Args:
        judging: the evaluation.
        twin: the reference's process, loading or loaded.
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
    with judging.stages.time("start"):
        with _trusted():
            _ready(judging, twin, contents, reference, judging.protocol.deadlines.import_s)
        judging.present(candidate, contents.case, reference)
    way = _Way.of(judging, contents)
    inputs = _Inputs(judging, candidate, reference, contents)
    moved = _Moved(rng, 0 if judging.device == "cpu" or reference.mutates else reference.out_size)
    mine = Side(candidate, {**way.command, "out": reference.out_tree}, inputs.for_candidate, moved)
    theirs = _Twin(twin, way.command, inputs.for_twin(twin), moved, partial(processes.halted, candidate.pid))
    start = time.perf_counter()
    with judging.quiet.alone():
        waited = time.perf_counter() - start
        judging.stages.current = "timing"
        single = reference.mutates
        with _looked_at(judging):
            result = measure(mine, theirs, judging.protocol, rng, single=single, each=way.each, between=inputs.compare)
        began = time.perf_counter()
        factor = _overstated(judging, mine, inputs.contents, reference)
        judging.stages.add("timing", time.perf_counter() - began)
    judging.stages.add("queue", waited)
    judging.stages.add("timing", result.busy_s)
    slower = [[value * factor for value in block] for block in mine.blocks]
    judging.figures = {
        "speedup": result.speedup / factor,
        "speedup_low": result.low / factor,
        "speedup_high": result.high / factor,
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
    """Processes that are no neighbours: this judge's, and other judges', which keep quiet while one times."""
    own = {os.getpid(), *judges()}
    return own | {pid for one in own for pid in processes.descendants(one)}


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
    protocol, way = judging.protocol, _Way.of(judging, contents)
    inputs = _Inputs(judging, candidate, reference, contents)
    ours, theirs = (Side(one, way.command, inputs.for_twin(one)) for one in (worker, twin))
    with processes.halted(candidate.pid):
        try:
            _ready(judging, worker, contents, reference, protocol.deadlines.import_s)
            # it compiles, or records, at its first call
            judging.command(worker, {"op": "batch", "calls": 1, "wait": 0}, protocol.deadlines.build_s)
            with judging.quiet.alone():
                single = reference.mutates
                result = measure(ours, theirs, protocol, rng, single=single, each=way.each, between=lambda: None)
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
    answer = worker.wait(seconds)
    if "error" in answer:
        raise RuntimeError(f"the reference's own process failed: {answer['error']['message'][:_PROBLEM_CHARS]}")
    judging.attach(worker, ("in", "other", "weights"))
    send_weights(judging, worker, reference, {name: name for name in reference.weight_leaves})
    judging.present(worker, contents.case, reference)


def _overstated(judging: Judging, side: Side, contents: Contents, reference: Reference) -> float:
    """Factor by which the candidate's own clock overstates its speed; 1 where both clocks agree."""
    reported_us = timing(side.blocks, "").median_us
    factor = 1.0
    for _ in range(2):
        outside = outside_us(judging, side.worker, contents, reference, reported_us)
        found = overstated(reported_us, outside)
        if found <= DISAGREE:
            return 1.0
        factor = min(factor, found) if factor > 1 else found
    return factor


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

    def time(self, calls: int, seconds: float, *, last: bool = True) -> list[float]:
        with _trusted():
            return super().time(calls, seconds, last=last)


class _Moved:
    """Sizes of memory to hold during a block, so that outputs lie at another place in each.

    Where they lie makes a difference that no repeating takes away: a constant one between two processes.
    """

    def __init__(self, rng: random.Random, size: int) -> None:
        self._rng = rng
        self._size = size if size <= _MOVED_BYTES else 0

    def __call__(self) -> list[int]:
        return [self._size] * self._rng.randrange(_PLACES) if self._size else []


class _Inputs:
    """What each side gets before its calls, and what becomes of the answers."""

    def __init__(self, judging: Judging, candidate: Worker, reference: Reference, contents: Contents) -> None:
        self.judging = judging
        self.candidate = candidate
        self.reference = reference
        self.contents = contents
        self._checks = 0
        self._checking_s = 0.0
        self._began = time.perf_counter()
        self._due: tuple[dict[str, Any], Callable[[], Case]] | None = None

    def for_candidate(self, calls: int, last: bool) -> tuple[list[Any], Callable[[dict[str, Any]], None]]:
        """New contents, each nearly those of the call before; at the end of a block the answer is due to be compared.

        It is compared later: the device is warmer after that, and it must not be one side alone that finds it so.
        """
        look = last and (
            self._checks < _FEWEST_CHECKS or self._checking_s < _CHECKING_SHARE * (time.perf_counter() - self._began)
        )
        self.judging.buffers["out"].bytes.fill_(0xFF)
        swaps, final = self._write(self.candidate, calls, near=last)

        def keep(answer: dict[str, Any]) -> None:
            self.judging.refuse_error(answer)
            self._due = (answer, final) if look else None

        return swaps, keep

    def for_twin(self, twin: Worker) -> Callable[[int, bool], tuple[list[Any], Callable[[dict[str, Any]], None]]]:
        """New contents likewise; its answers are not looked at."""

        def deliver(calls: int, last: bool) -> tuple[list[Any], Callable[[dict[str, Any]], None]]:
            return self._write(twin, calls, near=False)[0], self.judging.refuse_error

        return deliver

    def _write(self, worker: Worker, calls: int, *, near: bool) -> tuple[list[Any], Callable[[], Case]]:
        """Write what a worker gets; what is exchanged before each call; what the last one gets."""
        if "other" not in self.judging.buffers:
            case = self.contents.near() if near else self.contents.mixed()
            self.judging.present(worker, case, self.reference)
            return [[]] * calls, lambda: case
        walk = self.contents.walk(calls)
        self.reference.deliver(walk.other, self.judging.views(walk.other, "other"))
        self.judging.present(worker, walk.first, self.reference)
        return walk.swaps, walk.last

    def compare(self) -> None:
        """Compare the answer that is due, if there is one.

        Raises:
            Outcome: if it is wrong.
        """
        if self._due is None:
            return
        (answer, final), self._due = self._due, None
        start = time.perf_counter()
        self.judging.refuse_wrong(answer, final(), self.reference)
        self._checks += 1
        self._checking_s += time.perf_counter() - start
