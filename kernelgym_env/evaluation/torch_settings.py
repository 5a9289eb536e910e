"""What code may set in torch for the whole process.

- `Settings` -- as they are when it is made; `restore` sets them so again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

__all__ = ["Settings"]

_FLAGS = (
    (torch.backends.cudnn, "enabled"),
    (torch.backends.cudnn, "benchmark"),
    (torch.backends.cudnn, "deterministic"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    (torch.backends.cuda.matmul, "allow_fp16_accumulation"),
)

_SWITCHES: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    (torch.backends.cuda.preferred_blas_library, torch.backends.cuda.preferred_blas_library),
    (torch.backends.cuda.preferred_linalg_library, torch.backends.cuda.preferred_linalg_library),
    *(
        (partial(torch.is_autocast_enabled, kind), partial(torch.set_autocast_enabled, kind))
        for kind in ("cpu", "cuda")
    ),
)


class Settings:
    """Torch's settings that decide what a model computes, and how fast."""

    def __init__(self) -> None:
        # an older torch lacks one of them
        self._flags = [(owner, name, getattr(owner, name)) for owner, name in _FLAGS if hasattr(owner, name)]
        self._switches = [(look, turn, look()) for look, turn in _SWITCHES]
        self._dtype = torch.get_default_dtype()
        self._threads = torch.get_num_threads()
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._grad = torch.is_grad_enabled()

    def restore(self) -> None:
        """Set all of them as they were; no default device is set then."""
        for owner, name, value in self._flags:
            setattr(owner, name, value)
        for look, turn, value in self._switches:
            if look() != value:
                turn(value)
        torch.set_default_dtype(self._dtype)
        torch.set_default_device(None)
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        torch.use_deterministic_algorithms(self._deterministic)
        torch.set_grad_enabled(self._grad)
