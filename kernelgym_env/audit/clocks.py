"""How long a reference takes, how much memory, and what the least call costs.

- `measure` -- time and memory of its calls.
- `peak_bytes` -- the most memory that this process has used so far.
"""

from __future__ import annotations

import resource
import statistics
import time
from typing import Any

import torch

from kernelgym_env.evaluation.reference import Reference

__all__ = ["measure", "peak_bytes"]

_BUDGET_S = 0.5
_LEAST_CALLS, _MOST_CALLS = 3, 20
_LAUNCHES = 200


def measure(reference: Reference, inputs: list[Any]) -> dict[str, Any]:
    """Call a reference until half a second is over, at least three times after a first call, at most twenty.

    Caches stay as the call before left them, so a short call is timed at its best.

    Args:
        reference: constructed.
        inputs: arguments, which the reference may overwrite.

    Returns:
        ``time_us``, the median call: by device events on a GPU, else by the wall's clock. ``wall_us``, a call among
        many without waiting in between. ``launch_us``, the same of an operation on one element. ``bytes`` with the
        ``peak`` of a call, beside inputs and weights on a GPU; None on a CPU, which does not tell.

    Raises:
        TaskError: if the reference fails.
        torch.cuda.OutOfMemoryError: if it does not fit.
    """
    cuda = reference.device.type == "cuda"
    peak = None
    if cuda:
        torch.cuda.synchronize(reference.device)
        torch.cuda.reset_peak_memory_stats(reference.device)
        before = torch.cuda.memory_allocated(reference.device)
    start = time.perf_counter()
    reference.run(inputs)
    if cuda:
        torch.cuda.synchronize(reference.device)
        peak = torch.cuda.max_memory_allocated(reference.device) - before
    reference.run(inputs)  # the first call also loads libraries and chooses algorithms
    if cuda:
        torch.cuda.synchronize(reference.device)
    second = time.perf_counter()
    reference.run(inputs)
    if cuda:
        torch.cuda.synchronize(reference.device)
    calls = int(min(_MOST_CALLS, max(_LEAST_CALLS, _BUDGET_S / max(1e-9, time.perf_counter() - second))))
    times = _device_times(reference, inputs, calls) if cuda else _wall_times(reference, inputs, calls)
    start = time.perf_counter()
    for _ in range(calls):
        reference.run(inputs)
    if cuda:
        torch.cuda.synchronize(reference.device)
    wall = (time.perf_counter() - start) * 1e6 / calls
    return {
        "time_us": statistics.median(times),
        "wall_us": wall,
        "launch_us": _launch_us(reference.device),
        "bytes": {"peak": peak},
    }


def peak_bytes(device: torch.device) -> int:
    """The most that this process has allocated on a GPU; on a CPU the most memory that it has held, libraries too."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _device_times(reference: Reference, inputs: list[Any], calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(reference.device)
        start.record()
        reference.run(inputs)
        end.record()
        torch.cuda.synchronize(reference.device)
        times.append(start.elapsed_time(end) * 1e3)
    return times


def _wall_times(reference: Reference, inputs: list[Any], calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        reference.run(inputs)
        times.append((time.perf_counter() - start) * 1e6)
    return times


def _launch_us(device: torch.device) -> float:
    one = torch.zeros(1, device=device)
    one.add_(1)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(_LAUNCHES):
        one.add_(1)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) * 1e6 / _LAUNCHES
