"""A float32 reference computed with less precision, to see whether the tolerance notices.

- `ways` -- the formats that can be tried on a device, and how.
- `run` -- the reference in one of them.

On a GPU the reference runs in the format itself (``run``). A CPU has no TF32 and is slow in float16; there weights and
inputs are rounded to the format and the arithmetic stays float32 (``rounded``), which is what is left of the error when
products are accumulated in float32.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from kernelgym_env.evaluation.reference import Reference, TaskError, clone, map_tensors

__all__ = ["run", "ways"]

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_TF32_DROPPED = 13  # bits of float32's 23 that TF32 does not have


def ways(device: torch.device) -> list[tuple[str, str]]:
    """Formats, each with how it is tried: ``run`` or ``rounded``."""
    how = "run" if device.type == "cuda" else "rounded"
    return [("tf32", how), ("fp16", how), ("bf16", how)]


def run(reference: Reference, inputs: list[Any], name: str, how: str) -> Any:
    """The reference's output in a format.

    Args:
        reference: constructed; stays as it is.
        inputs: arguments, which stay as they are.
        name: ``tf32``, ``fp16`` or ``bf16``.
        how: ``run`` or ``rounded``.

    Raises:
        TaskError: if the reference does not work in it.
        torch.cuda.OutOfMemoryError: if a second model does not fit.
    """
    inputs = clone(inputs)
    if how == "run" and name == "tf32":
        flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = True, True
        try:
            return reference.run(inputs)
        finally:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags
    try:
        model = copy.deepcopy(reference.model)
        with torch.no_grad():
            if how == "run":
                dtype = _DTYPES[name]
                model = model.to(dtype)
                return model(*map_tensors(lambda t: t.to(dtype) if t.is_floating_point() else t, inputs))
            for tensor in [*model.parameters(), *model.buffers()]:
                tensor.copy_(_rounded(tensor, name))
            return model(*map_tensors(lambda t: _rounded(t, name), inputs))
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # references that insist on their own dtype
        raise TaskError(f"the reference does not work in {name}: {type(error).__name__}: {error}") from error


def _rounded(tensor: torch.Tensor, name: str) -> torch.Tensor:
    if tensor.dtype != torch.float32:
        return tensor
    if name != "tf32":
        return tensor.to(_DTYPES[name]).to(tensor.dtype)
    bits = tensor.contiguous().view(torch.int32)
    half = 1 << (_TF32_DROPPED - 1)
    kept = (bits + half) & ~((1 << _TF32_DROPPED) - 1)
    return torch.where(torch.isfinite(tensor), kept.view(torch.float32), tensor)
