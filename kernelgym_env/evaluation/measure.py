"""Candidate against reference, in interleaved blocks of cold calls, until the ratio's interval is narrow enough.

Both sides are like processes that read the same input buffer. Each block pair draws its order anew, the last-level
cache is overwritten before every call, inputs are such as were never seen before, and outputs of the candidate are
checked at calls that it cannot tell from others.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kernelgym_env.evaluation.protocols import Protocol
from kernelgym_env.evaluation.statistics import pair_ratio
from kernelgym_env.evaluation.workers import Worker, WorkerEnded

__all__ = ["Given", "Measured", "Side", "measure"]

_FEWEST_BLOCKS = 5
_MOST_EACH = 3
"""Calls in a block where each is delivered on its own: between two of them there is time for what disturbs one side."""
_PATIENCE = 2.0
_LONG_US = 20_000.0
_FEW = 4
"""Fewest calls whose median says what the one ahead of them took. Where there are fewer, as much as a whole call could
be hidden in its place, so the clock begins behind it."""

_LEAST_US, _MOST_US = 1e-3, 1e10


@dataclass(frozen=True)
class Given:
    """What a side gets for so many calls.

    Attributes:
        swaps: what is exchanged before each call; shape [calls][parts].
        write: writes the inputs into the shared buffer.
        check: gets the answer, and raises to end the measurement.
    """

    swaps: list[Any]
    write: Callable[[], None]
    check: Callable[[dict[str, Any]], None]


@dataclass
class Side:
    """One side of the comparison.

    Attributes:
        worker: the process.
        command: the ``time`` command without its number of calls.
        deliver: prepares inputs for so many calls.
        places: draws where memory lies during a block: ``moved``, sizes that the worker holds meanwhile, and
            ``flush_at``, from which byte on what empties the cache begins.
        late: whether inputs are always written once the worker has said that it is ready to call.
        warm: whether the worker makes one call first, on what it has, if calls are short: code runs in longer. With few
            calls inputs come late then, too.
        excess_us: microseconds by which launching takes longer in this process than in an average one; times are less
            by that.
        blocks: microseconds per call by block, filled in by `measure`.
        beyond_us: of each command, by how much the judge's wall clock exceeds what was reported, per call, in
            microseconds. Shape [commands].
    """

    worker: Worker
    command: dict[str, Any]
    deliver: Callable[[int], Given]
    places: Callable[[], dict[str, Any]] = lambda: {"moved": [], "flush_at": 0}
    late: bool = False
    warm: bool = False
    excess_us: float = 0.0
    blocks: list[list[float]] = field(default_factory=list)
    beyond_us: list[float] = field(default_factory=list)
    _last_us: float = 0.0

    def time(self, calls: int, seconds: float) -> list[float]:
        """Deliver inputs and time calls on them; the answer is checked.

        Args:
            calls: number of calls on these inputs.
            seconds: deadline.
        """
        given = self.deliver(calls)
        warm = self.warm and self._last_us < _LONG_US
        late = self.late or calls < _FEW
        command = {**self.command, "swaps": given.swaps, "warm": warm, "late": late, **self.places()}
        if late:
            answer = self.worker.ask(command, seconds)
            if answer.get("ready") is True:
                given.write()
                answer = self.worker.go(seconds)
        else:
            given.write()
            answer = self.worker.ask(command, seconds)
        given.check(answer)
        times = answer.get("us")
        if (
            not isinstance(times, list)
            or len(times) != calls
            or not all(type(value) in (int, float) and _LEAST_US <= value <= _MOST_US for value in times)
        ):
            raise WorkerEnded("garbage", f"it did not report {calls} positive times")
        self._last_us = max(times)
        ahead = statistics.median(times) if warm and not late else 0.0
        self.beyond_us.append((self.worker.answered_in_s * 1e6 - sum(times) - ahead) / calls)
        return [max(value - self.excess_us, _LEAST_US) for value in times]


@dataclass(frozen=True)
class Measured:
    """The result of `measure`.

    Attributes:
        speedup: median of the pair ratios reference / candidate, with its 95% interval.
        low: lower end.
        high: upper end.
    """

    speedup: float
    low: float
    high: float


def measure(
    candidate: Side,
    reference: Side,
    protocol: Protocol,
    rng: random.Random,
    *,
    most_calls: int,
    each: bool,
    between: Callable[[], None],
) -> Measured:
    """Time both sides.

    Args:
        candidate: the submission's side; its blocks are filled in.
        reference: the reference's side; likewise.
        protocol: number of blocks, budget and interval.
        rng: draws the orders; seeded from the secret.
        most_calls: greatest number of calls in a block, besides the protocol's.
        each: inputs are delivered before each call, not before each block.
        between: called after each pair of blocks, those that warm up too, for what must not disturb one side more than
            the other.

    Raises:
        WorkerEnded: if a side does not answer in time.
    """

    def run(side: Side, calls: int) -> list[float]:
        times: list[float] = []
        for _ in range(calls if each else 1):
            times += side.time(1 if each else calls, protocol.deadlines.run_s)
        return times

    first = [min(run(side, 1)) for side in (reference, candidate)]
    between()
    slow = max(first) * 1e-6 > protocol.budget_s / 4
    if protocol.warmup > 1 and not slow:
        first = [min(run(side, min(most_calls, protocol.warmup - 1))) for side in (reference, candidate)]
        between()
    most = min(protocol.max_block_calls, most_calls, _MOST_EACH if each else most_calls)
    calls = max(1, min(most, int(protocol.block_us / max(*first, 0.1))))
    for side in (candidate, reference):
        side.beyond_us.clear()  # what is first done takes longer
    start = time.perf_counter()
    for candidate_first in _orders(rng):
        order = [candidate, reference] if candidate_first else [reference, candidate]
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
    return Measured(*pair_ratio(reference.blocks, candidate.blocks))


def _orders(rng: random.Random) -> Iterator[bool]:
    """Whether the candidate is the first of a pair: as often as not in every four pairs, and else as it comes."""
    while True:
        four = [True, True, False, False]
        rng.shuffle(four)
        yield from four
