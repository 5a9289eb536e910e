"""New values for a model's parameters, on both sides alike.

Both constructors run from the same seed, so a submission's parameters hold the reference's values, under whatever
names. After construction, and again after the first calls, the judge overwrites them in place with values drawn from
the secret seed. What a submission precomputed from the old values and does not renew is then wrong, as it would be in
any use of the model in which weights are loaded or trained.

- `tensors_of` -- the parameters and running statistics of a model by name.
- `fingerprint` -- a digest of a tensor's values that any side can compute.
- `match` -- which of a submission's tensors hold which of the reference's.
- `redraw` -- new values for a tensor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["describe_tensors", "fingerprint", "match", "redraw", "tensors_of"]

_SAMPLE = 4096
_STATISTICS = ("running_mean", "running_var")


def tensors_of(model: Any) -> dict[str, torch.Tensor]:
    """Floating parameters and normalisation statistics of a module by name; each tensor once."""
    if not isinstance(model, nn.Module):
        return {}
    found: dict[str, torch.Tensor] = dict(nn.Module.named_parameters(model))
    found.update(
        (name, buffer)
        for name, buffer in nn.Module.named_buffers(model)
        if name.rpartition(".")[2] in _STATISTICS and buffer is not None
    )
    return {name: tensor for name, tensor in found.items() if tensor.is_floating_point() and tensor.numel()}


def fingerprint(tensor: torch.Tensor) -> str:
    """Digest of the values at up to 4,096 places, taken in the order of the elements; the shape does not enter."""
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // _SAMPLE)
    sample = flat[::step][:_SAMPLE].contiguous().cpu().view(torch.uint8).numpy().tobytes()
    head = f"{tensor.dtype}:{flat.numel()}:".encode()
    return hashlib.blake2b(head + sample, digest_size=16).hexdigest()


def describe_tensors(model: Any) -> list[dict[str, Any]]:
    """Name, element count, dtype and fingerprint of each of `tensors_of`, as plain data."""
    return [
        {"name": name, "numel": t.numel(), "dtype": str(t.dtype).removeprefix("torch."), "print": fingerprint(t)}
        for name, t in tensors_of(model).items()
    ]


def match(reference: Mapping[str, torch.Tensor], reported: Any) -> dict[str, str]:
    """Find the reference's tensors in a submission's report.

    A tensor matches one of the same name and values, else the first unused one of the same values. A name alone is no
    match: a submission may keep a scaled weight under the old name.

    Args:
        reference: tensors by name.
        reported: what `describe_tensors` gave in the other process; not trusted.

    Returns:
        The submission's name by the reference's name.
    """
    entries: dict[str, tuple[Any, Any, Any]] = {}
    for entry in reported if isinstance(reported, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            entries[entry["name"]] = (entry.get("numel"), entry.get("dtype"), entry.get("print"))
    wanted = {name: (t.numel(), str(t.dtype).removeprefix("torch."), fingerprint(t)) for name, t in reference.items()}
    found = {name: name for name, key in wanted.items() if entries.get(name) == key}
    free = {name: key for name, key in entries.items() if name not in found.values()}
    for name, key in wanted.items():
        if name in found:
            continue
        other = next((other for other, there in free.items() if there == key), None)
        if other is not None:
            found[name] = other
            del free[other]
    return found


def is_constant(tensor: torch.Tensor) -> bool:
    """Whether all elements are equal, as in a fresh bias or norm weight."""
    return bool((tensor == tensor.reshape(-1)[0]).all())


def redraw(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """New values of the same kind: elements rolled along and scaled by 0.5 to 1.5, so signs and positivity stay; an
    all-zero tensor becomes small noise.

    Args:
        tensor: any floating tensor.
        generator: on the tensor's device.
    """
    flat = tensor.detach().reshape(-1)
    if not bool((flat != 0).any()):
        noise = torch.randn(flat.shape, generator=generator, device=flat.device, dtype=torch.float32)
        return (0.1 * noise).to(tensor.dtype).reshape(tensor.shape)
    shift = int(torch.randint(flat.numel(), (1,), generator=generator, device=flat.device))
    scale = torch.rand(flat.shape, generator=generator, device=flat.device, dtype=torch.float32)
    return (flat.roll(shift) * (0.5 + scale).to(tensor.dtype)).reshape(tensor.shape)
