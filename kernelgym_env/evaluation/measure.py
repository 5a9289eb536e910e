"""Candidate against reference, in interleaved blocks of cold calls, until the ratio's interval is narrow enough.

Both sides are like processes that read the same input buffer. Each block pair draws its order and its inputs anew,
the last-level cache is overwritten before every call, and the last output of each candidate block is checked.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
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
        check: called after each block with the answer; raises to end the measurement.
        blocks: microseconds per call by block, filled in by `measure`.
    """

    worker: Worker
    command: dict[str, Any]
    check: Callable[[dict[str, Any]], None]
    blocks: list[list[float]] = field(default_factory=list)

    def time(self, calls: int, seconds: float) -> list[float]:
        """Time a block of calls; the answer is checked."""
        answer = self.worker.ask({**self.command, "calls": calls}, seconds)
        self.check(answer)
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
        busy_s: seconds in which one of the sides was running.
    """

    speedup: float
    low: float
    high: float
    busy_s: float


def measure(
    candidate: Side,
    reference: Side,
    deliver: Callable[[int], None],
    protocol: Protocol,
    rng: random.Random,
    *,
    single: bool,
) -> Measured:
    """Time both sides.

    Args:
        candidate: the submission's side; its blocks are filled in.
        reference: the reference's side; likewise.
        deliver: writes the inputs with the given number into the shared buffer.
        protocol: number of blocks, budget and interval.
        rng: draws the orders and inputs; seeded from the secret.
        single: one call a block, for a task that overwrites its inputs.

    Raises:
        WorkerEnded: if a side does not answer in time.
    """
    busy = 0.0

    def run(side: Side, calls: int) -> list[float]:
        nonlocal busy
        deliver(rng.randrange(2))
        start = time.perf_counter()
        times = side.time(calls, protocol.deadlines.run_s)
        busy += time.perf_counter() - start
        return times

    first = [min(run(side, 1)) for side in (reference, candidate)]
    slow = max(first) * 1e-6 > protocol.budget_s / 4
    if protocol.warmup > 1 and not slow:
        first = [min(run(side, 1 if single else protocol.warmup - 1)) for side in (reference, candidate)]
    calls = 1 if single else max(1, min(protocol.max_block_calls, int(protocol.block_us / max(*first, 0.1))))
    start = time.perf_counter()
    while True:
        order = [reference, candidate]
        rng.shuffle(order)
        for side in order:
            side.blocks.append(run(side, calls))
        done, spent = len(candidate.blocks), time.perf_counter() - start
        if done >= protocol.max_blocks or (done >= _FEWEST_BLOCKS and spent > _PATIENCE * protocol.budget_s):
            break
        if done >= protocol.min_blocks:
            speedup, low, high = pair_ratio(reference.blocks, candidate.blocks)
            if spent > protocol.budget_s or (high - low) / 2 <= protocol.target_width * speedup:
                break
    speedup, low, high = pair_ratio(reference.blocks, candidate.blocks)
    return Measured(speedup, low, high, busy)
