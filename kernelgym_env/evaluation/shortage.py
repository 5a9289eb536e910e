"""Whether something failed for want of a device's memory, which is no fault of whoever wanted it.

- `is_short` -- whether a text speaks of it.
"""

from __future__ import annotations

import re

__all__ = ["is_short"]

_SHORT = re.compile(
    r"out of memory|OutOfMemory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|STATUS_ALLOC_FAILED", re.IGNORECASE
)


def is_short(text: str) -> bool:
    """Whether an error's text says that a device had no memory left.

    >>> is_short("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."), is_short("wrong")
    (True, False)
    """
    return bool(_SHORT.search(text))
