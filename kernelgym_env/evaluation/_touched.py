"""Which bytes of given tensors a computation reads and writes.

- `Touched` -- a dispatch mode that adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Touched"]

_aten = torch.ops.aten
_LOOK_UPS = frozenset(
    {_aten.embedding, _aten._embedding_bag, _aten.index, _aten.index_select, _aten.gather, _aten.take}
)
"""Operators that read of their first tensor no more than they return."""


class _Regions:
    """Bytes of parts of storages; a part that comes again counts once, and no storage counts for more than it has."""

    def __init__(self) -> None:
        self._parts: dict[int, dict[Any, int]] = {}
        self._size: dict[int, int] = {}

    def add(self, tensor: torch.Tensor, most: int | None = None) -> None:
        """Count a tensor, or at most so many bytes of it."""
        size = _extent(tensor)
        place: Any = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        parts = self._parts.setdefault(_storage(tensor), {})
        self._size[_storage(tensor)] = tensor.untyped_storage().nbytes()
        if most is not None:
            place, size = (place, len(parts)), min(size, most)
        parts[place] = size

    @property
    def total(self) -> int:
        return sum(min(sum(parts.values()), self._size[storage]) for storage, parts in self._parts.items())


class Touched(TorchDispatchMode):
    """While it is entered, notes what operators read of some tensors, and which of them they overwrite.

    Args:
        given: the tensors. What is computed in between is no concern of it.
    """

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._given = {_storage(tensor) for tensor in _stored(given)}
        self._read = _Regions()
        self._overwritten = _Regions()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self._note(func, [*args, *(kwargs or {}).values()], result)
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for tensor in self._of(value):
                        self._overwritten.add(tensor)
        return result

    def _note(self, func: Any, arguments: list[Any], result: Any) -> None:
        if func.overloadpacket in _LOOK_UPS:
            table, *arguments = arguments
            out = sum(_extent(tensor) for tensor in _stored(tree_leaves(result)))
            for tensor in self._of(table):
                self._read.add(tensor, out)
        for tensor in self._of(arguments):
            self._read.add(tensor)

    def _of(self, value: Any) -> Iterator[torch.Tensor]:
        return (tensor for tensor in _stored(tree_leaves(value)) if _storage(tensor) in self._given)

    @property
    def read_bytes(self) -> int:
        """Bytes of the given tensors that were read."""
        return self._read.total

    def written_bytes(self, results: Iterable[torch.Tensor]) -> int:
        """Bytes that results take up beside the given tensors, and those of given tensors that were overwritten."""
        made = _Regions()
        for tensor in _stored(results):
            if _storage(tensor) not in self._given:
                made.add(tensor)
        return made.total + self._overwritten.total


def _storage(tensor: torch.Tensor) -> int:
    """What tells storages apart that are there at the same time, also on the meta device, where none has an address."""
    identity: int = tensor.untyped_storage()._cdata
    return identity


def _stored(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among them that have elements in a storage."""
    return (v for v in values if isinstance(v, torch.Tensor) and v.layout is torch.strided and v.numel())


def _extent(tensor: torch.Tensor) -> int:
    """Bytes of a tensor; elements that lie on top of each other count once."""
    reach = 1 + sum((extent - 1) * abs(step) for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    return min(tensor.numel(), reach) * tensor.element_size()
