"""Pure functions from samples to a figure with its interval.

- `bootstrap_median` -- a median and its percentile-bootstrap interval.
- `pair_ratio` -- a speedup from interleaved blocks.
- `rerun_interval` -- where the same measurement falls when it is made again, by new processes.
- `timing` -- a `Timing` from blocks of calls.
- `bucketed` -- CUDA-L1's speedup from bucket means, and whether they scatter too much.
- `confirmed` -- whether a second measurement bears out the first.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelgym_env.evaluation.result import Timing

__all__ = ["Bucketed", "bootstrap_median", "bucketed", "confirmed", "pair_ratio", "rerun_interval", "timing"]

_RESAMPLES = 1000
_LEVEL = 0.95
_Z = 1.959964  # standard deviations to each side that hold 95% of a normal distribution


def bootstrap_median(
    values: Sequence[float], *, quantile: float = 0.5, level: float = _LEVEL, seed: int = 0
) -> tuple[float, float, float]:
    """Median of `values`, or another quantile, with a percentile-bootstrap interval.

    Args:
        values: at least one finite number.
        quantile: 0.5 for the median.
        level: coverage of the interval, between 0 and 1.
        seed: of the resampling, so that the same samples give the same interval.

    Returns:
        (the quantile, low, high).

    Raises:
        ValueError: if `values` is empty or holds a number that is not finite.

    >>> bootstrap_median([2.0, 2.0, 2.0])
    (2.0, 2.0, 2.0)
    """
    data = np.asarray(values, dtype=float)
    if data.size == 0 or not np.isfinite(data).all():
        raise ValueError(f"bootstrap_median needs finite values, got {list(values)[:5]}.")
    generator = np.random.default_rng(seed)
    picks = generator.integers(0, data.size, size=(_RESAMPLES, data.size))
    medians = np.quantile(data[picks], quantile, axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return float(np.quantile(data, quantile)), float(low), float(high)


def pair_ratio(
    reference: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]]
) -> tuple[float, float, float]:
    """Speedup of the candidate from interleaved blocks.

    Each block pair gives one ratio, median reference time over median candidate time, so that drift slower than a pair
    cancels. The figure is their Hodges-Lehmann estimate in logarithms (the median of all geometric means of two ratios;
    Hodges and Lehmann, 1963), with Wilcoxon's interval. Where it matters which of a pair runs first, ratios come in two
    heaps, and their median is in one or the other by chance; this lies between them, if each order is as frequent.

    Args:
        reference: times per call by block, in any unit, shape [blocks][calls].
        candidate: the same for the candidate, same number of blocks.

    Returns:
        (speedup, low, high), the interval at 95%. Fewer than six pairs bear no such interval; it is then the range of
        the ratios.

    Raises:
        ValueError: if the numbers of blocks differ, or a block is empty or has a median of zero.

    >>> [round(value, 12) for value in pair_ratio([[4.0, 4.0], [6.0]], [[2.0], [3.0, 3.0]])]
    [2.0, 2.0, 2.0]
    """
    if len(reference) != len(candidate) or not reference:
        raise ValueError(f"Block pairs needed, got {len(reference)} and {len(candidate)} blocks.")
    logs = []
    for ref, cand in zip(reference, candidate, strict=True):
        one, two = (statistics.median(block) if len(block) else 0.0 for block in (ref, cand))
        if not one > 0 or not two > 0:
            raise ValueError("A block without a positive time has no ratio.")
        logs.append(math.log(one / two))
    data = np.asarray(logs)
    rows, columns = np.triu_indices(data.size)
    means = np.sort((data[rows] + data[columns]) / 2)
    beyond = _beyond(data.size)
    return (float(np.exp(np.median(means))), float(np.exp(means[beyond])), float(np.exp(means[-1 - beyond])))


@functools.lru_cache(maxsize=256)
def _beyond(pairs: int) -> int:
    """How many of the sorted means of two lie beyond either end of the interval, by Wilcoxon's signed-rank statistic.

    The statistic is the sum of those of the ranks 1 to `pairs` whose sign, by the toss of a coin, is plus.
    """
    chance = np.ones(1)
    for rank in range(1, pairs + 1):
        one = np.zeros(rank + 1)
        one[0] = one[rank] = 0.5
        chance = np.convolve(chance, one)
    return max(0, int(np.searchsorted(np.cumsum(chance), (1 - _LEVEL) / 2, side="right")) - 1)


def rerun_interval(ratio: float, low: float, high: float, run_to_run: float) -> tuple[float, float]:
    """Interval that holds the result of the same measurement, made again by new processes, 95% of the time.

    Repeats in one process say nothing of what is the same for all of them, such as where memory lies. That adds to what
    they do say; and two results differ by the square root of two more than one of them from the truth.

    Args:
        ratio: what was measured, above 0.
        low: lower end of its 95% interval by repeats in one process, above 0.
        high: upper end.
        run_to_run: relative standard deviation between processes, at least 0.

    Returns:
        (low, high). Distances are in logarithms, as ratios have them, so low is above 0.

    >>> low, high = rerun_interval(2.0, 2.0, 2.0, 0.005)
    >>> round(low, 4), round(high, 4)
    (1.9725, 2.0279)
    """

    def reach(end: float) -> float:
        return math.exp(math.sqrt(2) * math.hypot(math.log(end / ratio), _Z * run_to_run))

    return ratio / reach(low), ratio * reach(high)


def timing(blocks: Sequence[Sequence[float]], clock: str, *, seed: int = 0) -> Timing:
    """Median over all calls; the interval resamples whole blocks' medians, since calls of a block are alike.

    Args:
        blocks: microseconds per call by block, shape [blocks][calls].
        clock: name of the clock.
        seed: of the resampling.

    >>> timing([[1.0, 3.0], [2.0, 2.0]], "perf_counter").median_us
    2.0
    """
    calls = [value for block in blocks for value in block]
    _, low, high = bootstrap_median([float(np.median(block)) for block in blocks], seed=seed)
    middle = float(np.median(calls))
    return Timing(middle, min(low, middle), max(high, middle), len(calls), clock)


@dataclass(frozen=True)
class Bucketed:
    """A speedup from the means of buckets of calls.

    Attributes:
        speedup: median of the buckets' means.
        mean: their mean.
        variance: their population variance.
        steady: whether the variance is small enough for the figure to count.
    """

    speedup: float
    mean: float
    variance: float
    steady: bool


def bucketed(means: Sequence[float], *, max_variance: float = 0.005) -> Bucketed:
    """Median of bucket means, discarded where they scatter (CUDA-L1, section on robust timing).

    Args:
        means: mean speedup of each bucket, at least one, finite.
        max_variance: greatest population variance at which the figure counts.

    Raises:
        ValueError: if `means` is empty or holds a number that is not finite.

    >>> bucketed([1.50, 1.52, 1.49, 1.51, 1.50, 1.53]).steady
    True
    >>> bucketed([1.50, 1.52, 1.49, 1.51, 1.50, 1.53, 2.40]).steady
    False
    """
    data = np.asarray(means, dtype=float)
    if data.size == 0 or not np.isfinite(data).all():
        raise ValueError(f"bucketed needs finite means, got {list(means)[:5]}.")
    variance = float(np.var(data))
    return Bucketed(float(np.median(data)), float(np.mean(data)), variance, variance <= max_variance)


def confirmed(first: float, again: float, *, tolerance: float = 0.10) -> bool:
    """Whether a second measurement lies within `tolerance` of the first, relative to the first (CUDA-L1's re-test).

    Args:
        first: the speedup that was to be confirmed, above 0.
        again: the speedup of the re-test.
        tolerance: greatest relative difference.

    Raises:
        ValueError: if `first` is not above 0.

    >>> confirmed(4.0, 3.7), confirmed(4.0, 3.5)
    (True, False)
    """
    if not first > 0:
        raise ValueError(f"confirmed needs a first speedup above 0, got {first!r}.")
    return abs(first - again) <= tolerance * first
