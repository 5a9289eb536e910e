"""Whether anybody computes on a GPU.

A process that is held still starts nothing more, but what it has started goes on. The driver counts no process's work
in less than tenths of a second, so the judge looks for itself: work of two processes takes turns of some milliseconds
on a GPU, and a row of short waits shows a gap where another one had its turn.

- `is_idle` -- the answer.
"""

from __future__ import annotations

import itertools

import torch

__all__ = ["is_idle"]

_LEAD_CYCLES, _STEP_CYCLES, _STEPS = 4_000_000, 100_000, 100
"""Cycles of waiting while the row is launched, of a wait in it, and waits: 2 ms, 0.05 ms and together 5 ms at 2 GHz."""

_GAP_MS = 0.5
_LOOKS = 2


def is_idle(device: str) -> bool:
    """Whether nobody else computes on a device; True for a CPU, where there is another remedy.

    Args:
        device: ``"cpu"`` or ``"cuda:0"`` as this process sees it; its own work there is waited for.
    """
    return device == "cpu" or any(_longest_ms(device) < _GAP_MS for _ in range(_LOOKS))


def _longest_ms(device: str) -> float:
    """Longest time between two events of a row with short waits between them."""
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(_STEPS + 1)]
        torch.cuda._sleep(_LEAD_CYCLES)
        for event in events:
            event.record()
            torch.cuda._sleep(_STEP_CYCLES)
        torch.cuda.synchronize()
        return max(first.elapsed_time(second) for first, second in itertools.pairwise(events))
