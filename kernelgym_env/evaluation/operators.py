"""Which of torch's operators ran, on whatever thread, by torch's own record of them.

A dispatch mode belongs to one thread, and Python code can take it off. What records operators for the profiler sits
below that and sees all threads. On a CPU it takes some milliseconds.

- `Recorded` -- records what runs within a ``with`` block.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import zip_longest
from typing import Any

import torch
from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler, _profiler_enabled
from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig

from kernelgym_env.evaluation.denied import SMALL, is_free

__all__ = ["ENDED", "Recorded"]

ENDED = "(the record of operators was ended)"
"""Stands among what was found where the submission switched the record off."""

_ON = {ProfilerActivity.CPU}
_MOST = 100_000
_IMPLICIT = "CompositeImplicitAutograd"


def _config() -> Any:
    try:
        more = _ExperimentalConfig(profile_all_threads=True)
    except TypeError:  # releases of torch that record the calling thread only
        more = _ExperimentalConfig()
    return ProfilerConfig(ProfilerState.KINETO, True, False, False, False, False, more)


class Recorded:
    """Records operators.

    Args:
        allowed: names that any submission may use besides those that do not compute.

    Attributes:
        found: names of operators that computed on more than `denied.SMALL` elements, known once the block is left.
    """

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        self._allowed = allowed
        self.found: list[str] = []

    def __enter__(self) -> Recorded:
        if _profiler_enabled():
            _disable_profiler()  # the submission's own, which would be in the way
        config = _config()
        _prepare_profiler(config, _ON)
        _enable_profiler(config, _ON)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            recorded = _disable_profiler().events()[:_MOST]
        except RuntimeError:  # there is none to end any more
            self.found = [ENDED]
            return
        events = [
            (event.start_thread_id(), event.start_ns(), event.start_ns() + event.duration_ns(), event)
            for event in recorded
        ]
        events.sort(key=lambda one: (one[0], one[1], -one[2]))
        names = []
        for (thread, start, end, event), after in zip_longest(events, events[1:]):
            called_others = after is not None and after[0] == thread and start <= after[1] < end
            if self._computes(event, called_others):
                names.append(event.name().partition("::")[2])
        self.found = list(dict.fromkeys(names))

    def _computes(self, event: Any, called_others: bool) -> bool:
        namespace, _, name = event.name().partition("::")
        if is_free(name, namespace) or name in self._allowed:
            return False
        composite = _composite(name, namespace)
        if composite == {True} or (True in composite and called_others):
            return False  # it did what those did that it called, or nothing
        return any(math.prod(shape) > SMALL for shape in event.shapes() if shape)


@cache
def _composite(name: str, namespace: str) -> frozenset[bool]:
    """Of each overload of an operator, whether it does nothing but call others."""
    packet = getattr(getattr(torch.ops, namespace), name, None)
    found = set()
    for overload in packet.overloads() if packet is not None else ():
        full = f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}")
        try:
            found.add(bool(torch._C._dispatch_has_kernel_for_dispatch_key(full, _IMPLICIT)))
        except RuntimeError:
            continue  # an overload of TorchScript's on plain numbers, which no tensor meets
    return frozenset(found)
