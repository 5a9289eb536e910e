"""Candidate against reference, in interleaved blocks of cold calls, until the ratio's interval is narrow enough.

Both sides are like processes that read the same input buffer. Each block pair draws its order anew, the last-level
cache is overwritten before every call, inputs are such as were never seen before, and outputs of the candidate are
checked at calls that it cannot tell from others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from kernelgym_env.evaluation.protocols import Protocol
from kernelgym_env.evaluation.statistics import pair_ratio
from kernelgym_env.evaluation.workers import Worker, WorkerEnded

__all__ = ["Measured", "Side", "measure"]

_FEWEST_BLOCKS = 5
_PATIENCE = 2.0
_LEAST_US, _MOST_US = 1e-3, 1e10


@dataclass
class Side:
    """One side of the comparison.

    Attributes:
        worker: the process.
        command: the ``time`` command without its number of calls.
        deliver: writes inputs into the shared buffer before so many calls, the last of a block or not; gives what is
            exchanged between them, and what becomes of the answer: a function that raises to end the measurement.
        moved: draws the sizes of memory that the worker holds during a block.
        quiet: entered around each block.
        blocks: microseconds per call by block, filled in by `measure`.
    """

    worker: Worker
    command: dict[str, Any]
    deliver: Callable[[int, bool], tuple[list[Any], Callable[[dict[str, Any]], None]]]
    moved: Callable[[], list[int]] = list
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext
    blocks: list[list[float]] = field(default_factory=list)

    def time(self, calls: int, seconds: float, *, last: bool = True) -> list[float]:
        """Deliver inputs and time calls on them; the answer is checked.

        Args:
            calls: number of calls on these inputs.
            seconds: deadline.
            last: whether they are the last of a block.
        """
        swaps, check = self.deliver(calls, last)
        answer = self.worker.ask({**self.command, "swaps": swaps, "moved": self.moved()}, seconds)
        check(answer)
        times = answer.get("us")
        if (
            not isinstance(times, list)
            or len(times) != calls
            or not all(type(value) in (int, float) and _LEAST_US <= value <= _MOST_US for value in times)
        ):
            raise WorkerEnded("garbage", f"it did not report {calls} positive times")
        return [float(value) for value in times]


@dataclass(frozen=True)
class Measured:
    """The result of `measure`.

    Attributes:
        speedup: median of the pair ratios reference / candidate, with its 95% interval.
        low: lower end.
        high: upper end.
        busy_s: seconds in which the sides were running or got their inputs.
    """

    speedup: float
    low: float
    high: float
    busy_s: float


def measure(
    candidate: Side,
    reference: Side,
    protocol: Protocol,
    rng: random.Random,
    *,
    single: bool,
    each: bool,
    between: Callable[[], None],
) -> Measured:
    """Time both sides.

    Args:
        candidate: the submission's side; its blocks are filled in.
        reference: the reference's side; likewise.
        protocol: number of blocks, budget and interval.
        rng: draws the orders; seeded from the secret.
        single: one call a block, for a task that overwrites its inputs.
        each: inputs are delivered before each call, not before each block.
        between: called after each pair of blocks, those that warm up too, for what must not disturb one side more than
            the other.

    Raises:
        WorkerEnded: if a side does not answer in time.
    """
    busy = 0.0

    def run(side: Side, calls: int) -> list[float]:
        nonlocal busy
        start = time.perf_counter()
        times: list[float] = []
        with side.quiet():
            for done in range(calls if each else 1):
                last = not each or done == calls - 1
                times += side.time(1 if each else calls, protocol.deadlines.run_s, last=last)
        busy += time.perf_counter() - start
        return times

    first = [min(run(side, 1)) for side in (reference, candidate)]
    between()
    slow = max(first) * 1e-6 > protocol.budget_s / 4
    if protocol.warmup > 1 and not slow:
        first = [min(run(side, 1 if single else protocol.warmup - 1)) for side in (reference, candidate)]
        between()
    calls = 1 if single else max(1, min(protocol.max_block_calls, int(protocol.block_us / max(*first, 0.1))))
    start = time.perf_counter()
    while True:
        order = [reference, candidate]
        rng.shuffle(order)
        for side in order:
            side.blocks.append(run(side, calls))
        between()
        done, spent = len(candidate.blocks), time.perf_counter() - start
        if done >= protocol.max_blocks or (done >= _FEWEST_BLOCKS and spent > _PATIENCE * protocol.budget_s):
            break
        if done >= protocol.min_blocks:
            speedup, low, high = pair_ratio(reference.blocks, candidate.blocks)
            if spent > protocol.budget_s or (high - low) / 2 <= protocol.target_width * speedup:
                break
    speedup, low, high = pair_ratio(reference.blocks, candidate.blocks)
    return Measured(speedup, low, high, busy)
