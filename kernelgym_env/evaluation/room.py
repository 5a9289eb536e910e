"""Memory of a device that several judges share.

Each evaluation takes what it needs, so together they may need more than there is. Which of them then fails is chance,
and no fault of its own. So each waits until there is as much as evaluations of its size have been seen to need; and
whatever runs out of memory all the same is judged once more while nobody else is there.

- `Room` -- one judge's part in it.
- `largest_bytes` -- how much a task's tensors take.
- `needed_bytes` -- what an evaluation of it needs.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelgym_env.evaluation.locks import Shares
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.reference import Reference
from kernelgym_env.evaluation.workers import judges
from kernelgym_env.tasks.model import Task

__all__ = ["Room", "largest_bytes", "needed_bytes"]

_LONGEST_WAIT_S = 3600.0
_LOCK, _SHARES = "room", 64
_TIMES_LARGEST, _LEAST_BYTES = 14, 2 << 30
"""Memory of an evaluation: on an H200 11 to 14 times its inputs where these are gigabytes and the output is as large,
and its three contexts."""

_MOST_OPERATORS = 4000
_TAKEN, _MOST_TAKEN = 0.1, 0.3
_JUDGE_BYTES = 2 << 30
"""More than the contexts of a judge and its spare workers take while it does nothing."""


def largest_bytes(task: Task) -> int:
    """Bytes of a task's inputs, of its parameters, or of its output, whichever are most.

    Nothing is computed and no memory taken. Where the reference does not work so, or not soon, the output is left out,
    or all.
    """
    largest = 0
    # code that does not work on such a device, or not at all, is told when it is judged
    with suppress(Exception):
        reference = Reference(task, "meta", 0, get_protocol("strict"))
        with torch.device("meta"):
            inputs = reference.draw(0)
            largest = reference.case_of(inputs).size
            reference.construct()
            largest = max(largest, reference.weight_size)
            with _Few():
                largest = max(largest, _bytes(reference.run(inputs)))
    return largest


class _Few(TorchDispatchMode):
    """Within the block torch is asked for so many operators at most: a recurrent network asks for tens of thousands."""

    def __init__(self) -> None:
        super().__init__()
        self._left = _MOST_OPERATORS

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("too many operators")
        return func(*args, **(kwargs or {}))


def _bytes(values: Any) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def needed_bytes(largest: int) -> int:
    """Bytes of a device that an evaluation needs, its judge and all processes together.

    Args:
        largest: see `largest_bytes`.

    >>> needed_bytes(0) >> 30, needed_bytes(8 << 30) >> 30
    (2, 114)
    """
    return _LEAST_BYTES + _TIMES_LARGEST * largest


class Room:
    """One judge's part in a device's memory.

    Args:
        device: as this process sees it.
        total: the device's memory in bytes.
    """

    def __init__(self, device: str, total: int) -> None:
        self._device = device
        self._total = total
        self._shares = Shares(device, "judging", lock=_LOCK, number=_SHARES)

    @contextmanager
    def hold(self, needed: int) -> Iterator[None]:
        """Within the block others may judge on the device as well, but for as much memory.

        Args:
            needed: bytes; all that there is where it is more.

        Raises:
            TimeoutError: if others held it for an hour.
        """
        count = max(1, min(_SHARES, math.ceil(_SHARES * needed / self._total)))
        with self._shares.hold(count, _LONGEST_WAIT_S):
            yield

    def alone(self) -> AbstractContextManager[None]:
        """Within the block no other judge has an evaluation on the device; see `hold`."""
        return self.hold(self._total)

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
