"""Choosing kernels of different speed, as CUDA-L1's prompt does.

- `Kernel` -- a source and its speedup.
- `buckets` -- kernels of like speed together.
- `draw` -- some kernels, each from another bucket.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Kernel", "buckets", "draw"]


@dataclass(frozen=True)
class Kernel:
    """A correct kernel.

    Attributes:
        source: its source.
        speedup: its speedup over eager PyTorch.
    """

    source: str
    speedup: float


def buckets(kernels: Sequence[Kernel], edges: Sequence[float]) -> list[list[Kernel]]:
    """Kernels between the same two edges together, slowest first; empty buckets are left out.

    >>> [[kernel.speedup for kernel in bucket] for bucket in buckets([Kernel("a", 2.5), Kernel("b", 1.0)], [1.0, 2.0])]
    [[1.0], [2.5]]
    """
    found: dict[int, list[Kernel]] = {}
    for kernel in kernels:
        found.setdefault(bisect.bisect_right(edges, kernel.speedup), []).append(kernel)
    return [found[index] for index in sorted(found)]


def draw(
    kernels: Sequence[Kernel], count: int, edges: Sequence[float], temperature: float, rng: np.random.Generator
) -> list[Kernel]:
    """Draw kernels from different buckets.

    A bucket is drawn with the probability ``softmax((m - mean(m)) / temperature)`` of its mean speedup ``m``, without
    replacement, and a kernel of it uniformly.

    Source: CUDA-L1 (DeepReinforce), bucket-based exemplar selection.

    Args:
        kernels: what to draw from.
        count: how many; fewer are drawn where there are fewer buckets.
        edges: speedups that separate the buckets, rising.
        temperature: of the softmax, above 0.
        rng: random numbers.

    Returns:
        The kernels, slowest first.

    >>> drawn = draw([Kernel("a", 0.5), Kernel("b", 0.6), Kernel("c", 2.5)], 2, [1.0], 1.0, np.random.default_rng(0))
    >>> drawn[1].speedup
    2.5
    """
    groups = buckets(kernels, edges)
    means = np.array([np.mean([kernel.speedup for kernel in group]) for group in groups])
    chosen: list[Kernel] = []
    left = list(range(len(groups)))
    while left and len(chosen) < count:
        logits = (means[left] - means.mean()) / temperature
        weights = np.exp(logits - logits.max())
        index = int(rng.choice(len(left), p=weights / weights.sum()))
        group = groups[left.pop(index)]
        chosen.append(group[int(rng.integers(len(group)))])
    return sorted(chosen, key=lambda kernel: kernel.speedup)
