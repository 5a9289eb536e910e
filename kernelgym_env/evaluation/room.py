"""Memory of a device that several judges share.

Each evaluation takes what it needs, so together they may need more than there is. Which of them then fails is chance,
and no fault of its own. So whatever ran out of memory is judged once more while nobody else is there.

- `Room` -- one judge's part in it.
- `is_short` -- whether a text speaks of memory that there was not.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kernelgym_env.evaluation.locks import Turn
from kernelgym_env.evaluation.workers import judges

__all__ = ["Room", "is_short"]

_LONGEST_WAIT_S = 3600.0
_LOCK = "room"
_TAKEN, _MOST_TAKEN = 0.1, 0.3
_JUDGE_BYTES = 2 << 30
"""More than the contexts of a judge and its spare workers take while it does nothing."""

_SHORT = re.compile(
    r"out of memory|OutOfMemory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|STATUS_ALLOC_FAILED", re.IGNORECASE
)


def is_short(text: str) -> bool:
    """Whether an error's text says that a device had no memory left.

    >>> is_short("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."), is_short("wrong")
    (True, False)
    """
    return bool(_SHORT.search(text))


class Room:
    """One judge's part in a device's memory.

    Args:
        device: as this process sees it.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._together = Turn(device, "judging", lock=_LOCK, shared=True)
        self._alone = Turn(device, "judging what needs much memory", lock=_LOCK)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Within the block others may judge on the device as well.

        Raises:
            TimeoutError: if somebody had the device's memory alone for an hour.
        """
        self._together.take(_LONGEST_WAIT_S)
        try:
            yield
        finally:
            self._together.give()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block no other judge has an evaluation on the device.

        Raises:
            TimeoutError: if the others took an hour.
        """
        self._alone.take(_LONGEST_WAIT_S)
        try:
            yield
        finally:
            self._alone.give()

    def taken(self) -> str:
        """What others than judges hold of the device's memory, if it is much: then who runs out of it is not to blame.

        Call it within `alone`, with no evaluation of one's own in progress.
        """
        gc.collect()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self._device)
        if total - free <= min(_TAKEN * total + _JUDGE_BYTES * len(judges()), _MOST_TAKEN * total):
            return ""
        return f"of the device's {total / 2**30:.1f} GiB only {free / 2**30:.1f} are free: other programs hold the rest"
