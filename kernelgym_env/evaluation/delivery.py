"""Copying a returned tensor into the judge's memory without torch's dispatcher.

A submission may have replaced operators of torch, `copy_` among them, so the bytes are moved by `memmove` or by the
CUDA driver on the stream that the call was made on. The functions that find the address are taken before the
submission's code is imported.

- `Courier` -- puts tensors into a buffer.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from kernelgym_env.evaluation.buffers import Buffer, span

__all__ = ["Courier"]

_address = torch.Tensor.data_ptr
_stride = torch.Tensor.stride
_contiguous = torch.Tensor.contiguous
_memmove = ctypes.memmove


class Courier:
    """Copies raw memory on one device.

    Args:
        device: ``"cpu"`` or ``"cuda:<index>"``.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._driver: Any = ctypes.CDLL("libcuda.so.1") if self.device.type == "cuda" else None
        self._stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def put(self, tensor: torch.Tensor, buffer: Buffer, leaf: dict[str, Any]) -> None:
        """Copy a tensor to the place its description gives, and note its strides in the description.

        A tensor whose elements lie densely in some order goes as it lies; any other is made contiguous first.

        Args:
            tensor: of the shape and dtype that `leaf` gives, on this device.
            buffer: where it goes.
            leaf: its description; ``"stride"`` is rewritten.

        Raises:
            RuntimeError: if the copy fails.
        """
        count = tensor.numel()
        if not count:
            return
        stride = list(_stride(tensor))
        if span(tensor.shape, stride) != count or tensor.is_conj() or tensor.is_neg():
            tensor = _contiguous(tensor.resolve_conj().resolve_neg())
            stride = list(_stride(tensor))
        leaf["stride"] = stride
        size = count * tensor.element_size()
        target, source = _address(buffer.bytes) + leaf["offset"], _address(tensor)
        if self._driver is None:
            _memmove(target, source, size)
            return
        stream = self._stream(self.device.index or 0) if self._stream is not None else 0
        code = self._driver.cuMemcpyDtoDAsync_v2(
            ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size), ctypes.c_void_p(stream)
        )
        if code:
            raise RuntimeError(f"CUDA error {code} while the output was copied")
