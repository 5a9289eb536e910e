"""What code may set in torch for the whole process.

- `Settings` -- as they are when it is made; `restore` sets them so again.
"""

from __future__ import annotations

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
)


class Settings:
    """Torch's settings that decide what a model computes, and how fast."""

    def __init__(self) -> None:
        self._flags = [getattr(owner, name) for owner, name in _FLAGS]
        self._dtype = torch.get_default_dtype()
        self._threads = torch.get_num_threads()
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._grad = torch.is_grad_enabled()

    def restore(self) -> None:
        """Set all of them as they were; no default device is set then."""
        for (owner, name), value in zip(_FLAGS, self._flags, strict=True):
            setattr(owner, name, value)
        torch.set_default_dtype(self._dtype)
        torch.set_default_device(None)
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        torch.use_deterministic_algorithms(self._deterministic)
        torch.set_grad_enabled(self._grad)
