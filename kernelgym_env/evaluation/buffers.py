"""Memory shared between the judge and a candidate, and the plain description of what lies in it.

The judge owns every buffer: a `memfd` on the CPU, a dedicated CUDA allocation shared by IPC handle on a GPU (never a
piece of a caching allocator's block, which would share its neighbours too). A candidate maps it; tensors on both
sides are views.

- `Buffer` -- one shared piece of memory: `Buffer.create`, `Buffer.attach`, `tensor`.
- `describe` -- a pytree of tensors and plain values as JSON, with offsets into a buffer.
- `build` -- the inverse: views into a buffer.
- `is_description` -- whether untrusted data has that form.
- `describe_plain`, `build_plain` -- the same for constructor arguments, values included.
- `skeleton` -- what two outputs must share.
- `ordered_keys` -- the order in which a dict is walked.
- `give_back` -- what torch keeps of a device's memory, where that gets short.
- `span` -- how many elements a strided tensor reaches over; `view` -- the tensor itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
from collections.abc import Callable
from typing import Any

import torch

__all__ = [
    "ALIGN",
    "Buffer",
    "TreeError",
    "build",
    "build_plain",
    "describe",
    "describe_plain",
    "give_back",
    "is_description",
    "leaves",
    "ordered_keys",
    "skeleton",
    "span",
    "view",
]

ALIGN = 512
"""Every tensor starts at a multiple of this many bytes."""

_MAX_DEPTH = 16
_MAX_LEAVES = 1024
_MAX_TEXT = 4096
_SMALL_BYTES = 1 << 18
_KEPT_BYTES, _PLENTY = 1 << 30, 0.4
"""Free memory that torch may keep in a process whatever happens; share of a device's that is enough for others."""

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.bits"))
}


class TreeError(Exception):
    """A value that cannot be described: too deep, too many leaves, an unknown type, a tensor subclass."""


class _Driver:
    """The five driver calls that dedicated, shareable device memory takes."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.lib, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(code, ctypes.byref(text))
            reason = (text.value or b"?").decode()
            if code == 2:
                raise torch.cuda.OutOfMemoryError(f"{name}: {reason}")
            raise RuntimeError(f"{name}: {reason}")


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


class _DeviceBytes:
    """What torch reads to wrap a raw device pointer."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (pointer, False),
            "shape": (size,),
            "strides": None,
            "typestr": "|u1",
            "version": 2,
        }


class Buffer:
    """One piece of memory that two processes see.

    Attributes:
        size: bytes.
        device: ``"cpu"`` or ``"cuda:<index>"``.
        bytes: uint8 tensor of shape [size] over it.
    """

    def __init__(self, size: int, device: str, fd: int, pointer: int, data: torch.Tensor, owner: bool) -> None:
        self.size = size
        self.device = device
        self.bytes = data
        self._fd = fd
        self._pointer = pointer
        self._owner = owner

    @classmethod
    def create(cls, size: int, device: str) -> Buffer:
        """Allocate `size` bytes on `device`.

        Raises:
            torch.cuda.OutOfMemoryError: if the device has no room.
            OSError: if the host has none.
        """
        size = max(ALIGN, -(-size // ALIGN) * ALIGN)
        if device == "cpu":
            fd = os.memfd_create("kernelgym", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size)
            # a candidate that shrank it would have the judge killed at the next access
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return cls(size, device, fd, 0, _map(fd, size), True)
        torch.cuda.current_stream(device)  # makes the primary context current in this thread
        torch.empty(1, device=device)
        pointer = ctypes.c_uint64()
        try:
            _Driver().call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()  # what torch keeps for later is free for us
            _Driver().call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return cls(size, device, -1, pointer.value, _wrap(pointer.value, size, device), True)

    @classmethod
    def attach(cls, size: int, device: str, *, fd: int = -1, handle: str = "") -> Buffer:
        """Map a buffer of another process, from its file descriptor or its CUDA IPC handle (hexadecimal)."""
        if device == "cpu":
            data = _map(fd, size)
            os.close(fd)
            return cls(size, device, -1, 0, data, False)
        torch.empty(1, device=device)
        pointer, raw = ctypes.c_uint64(), _IpcHandle()
        ctypes.memmove(ctypes.byref(raw), bytes.fromhex(handle), 64)
        _Driver().call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), raw, ctypes.c_uint(1))
        return cls(size, device, -1, pointer.value, _wrap(pointer.value, size, device), False)

    def share(self) -> tuple[dict[str, Any], list[int]]:
        """What the other process needs: a message and file descriptors."""
        message: dict[str, Any] = {"size": self.size, "device": self.device, "handle": ""}
        if self.device == "cpu":
            return message, [self._fd]
        raw = _IpcHandle()
        _Driver().call("cuIpcGetMemHandle", ctypes.byref(raw), ctypes.c_uint64(self._pointer))
        message["handle"] = ctypes.string_at(ctypes.byref(raw), 64).hex()
        return message, []

    def tensor(self, leaf: dict[str, Any]) -> torch.Tensor:
        """The view that a tensor's description stands for."""
        return view(self.bytes, leaf)

    def raw(self, leaf: dict[str, Any]) -> torch.Tensor:
        """The bytes of a densely stored tensor, in the order in which they lie."""
        size = math.prod(leaf["shape"]) * _DTYPES[leaf["dtype"]].itemsize
        return self.bytes[leaf["offset"] : leaf["offset"] + size]

    def close(self) -> None:
        """Free the memory (the judge's side); views of it must not be used afterwards."""
        self.bytes = torch.empty(0, dtype=torch.uint8)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._pointer:
            torch.cuda.current_stream(self.device)  # makes the context current in this thread
            _Driver().call("cuMemFree_v2" if self._owner else "cuIpcCloseMemHandle", ctypes.c_uint64(self._pointer))
            self._pointer = 0


def view(data: torch.Tensor, leaf: dict[str, Any]) -> torch.Tensor:
    """The tensor that a description stands for, as a view of bytes, shape [at least its last byte]."""
    dtype, shape, stride = _DTYPES[leaf["dtype"]], leaf["shape"], leaf["stride"]
    count = span(shape, stride)
    start = leaf["offset"]
    flat = data[start : start + count * dtype.itemsize].view(dtype)
    return flat.as_strided(shape, stride) if count else flat.new_empty(shape)


def give_back(device: torch.device | str) -> None:
    """Give a GPU what torch keeps of its memory for later calls, if it is much and the GPU has not plenty left.

    Giving memory back and taking it again costs milliseconds, of the device too. Of a CPU nothing is kept.
    """
    if torch.device(device).type == "cpu":
        return
    if torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) <= _KEPT_BYTES:
        return
    free, total = torch.cuda.mem_get_info(device)
    if free < _PLENTY * total:
        torch.cuda.empty_cache()


def _map(fd: int, size: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)


def _wrap(pointer: int, size: int, device: str) -> torch.Tensor:
    return torch.as_tensor(_DeviceBytes(pointer, size), device=device)


def span(shape: list[int] | torch.Size, stride: list[int] | tuple[int, ...]) -> int:
    """Elements from the first to the last one that a strided tensor reaches, 0 for an empty one.

    >>> span([2, 3], [3, 1]), span([4, 5], [0, 1]), span([0, 3], [3, 1]), span([], [])
    (6, 5, 0, 1)
    """
    if any(extent == 0 for extent in shape):
        return 0
    return 1 + sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True))


def describe(value: Any, *, dense: bool) -> tuple[dict[str, Any], int]:
    """Describe a pytree as plain data, laying its tensors out one after the other.

    Args:
        value: tensors, numbers, strings, None, and lists, tuples and dicts of them.
        dense: describe every tensor as contiguous (outputs) instead of by its own strides (inputs).

    Returns:
        The description and the bytes a buffer needs for it.

    Raises:
        TreeError: for anything else, or for too much of it.
    """
    position = 0
    count = 0

    def walk(node: Any, depth: int) -> dict[str, Any]:
        nonlocal position, count
        count += 1
        if depth > _MAX_DEPTH or count > _MAX_LEAVES:
            raise TreeError(f"more than {_MAX_LEAVES} values or {_MAX_DEPTH} levels")
        if isinstance(node, torch.Tensor):
            if type(node) not in (torch.Tensor, torch.nn.Parameter):
                raise TreeError(f"a tensor subclass ({type(node).__name__}) instead of a plain tensor")
            if node.layout is not torch.strided or node.is_quantized:
                raise TreeError(f"a tensor of layout {node.layout} instead of a dense one")
            shape = list(node.shape)
            stride = _dense(shape) if dense else list(node.stride())
            leaf = {
                "t": "tensor",
                "dtype": str(node.dtype).removeprefix("torch."),
                "shape": shape,
                "stride": stride,
                "offset": position,
            }
            position += -(-span(shape, stride) * node.dtype.itemsize // ALIGN) * ALIGN
            return leaf
        if isinstance(node, dict):
            # an output's dict has no order, an argument's keeps its own
            keys = ordered_keys(node)
            if not dense:
                keys = list(dict.keys(node))
            return {"t": "dict", "keys": keys, "items": [walk(dict.__getitem__(node, key), depth + 1) for key in keys]}
        if isinstance(node, list):
            return {"t": "list", "items": [walk(item, depth + 1) for item in list.__iter__(node)]}
        if isinstance(node, tuple):
            return {"t": "tuple", "items": [walk(item, depth + 1) for item in tuple.__iter__(node)]}
        if node is None or type(node) in (bool, float):
            return {"t": "value", "value": node}
        if type(node) is int:
            if not -(2**63) <= node < 2**64:
                raise TreeError("an integer of more than 64 bits")
            return {"t": "value", "value": node}
        if type(node) is str:
            if len(node) > _MAX_TEXT:
                raise TreeError(f"a text of {len(node)} characters")
            return {"t": "value", "value": node}
        raise TreeError(f"a value of type {type(node).__name__}")

    return walk(value, 0), position


def build(tree: dict[str, Any], tensor: Callable[[dict[str, Any]], Any]) -> Any:
    """Rebuild a pytree from its description, each tensor by `tensor(leaf)`."""
    kind = tree["t"]
    if kind == "tensor":
        return tensor(tree)
    if kind == "value":
        return tree["value"]
    items = [build(item, tensor) for item in tree["items"]]
    if kind == "dict":
        return dict(zip(tree["keys"], items, strict=True))
    return tuple(items) if kind == "tuple" else items


def describe_plain(value: Any) -> dict[str, Any]:
    """Describe constructor arguments as plain data, without a buffer: what `describe` takes, dtypes and devices too;
    the values of small tensors go along.

    Raises:
        TreeError: for anything else, or for a tensor of more than `_SMALL_BYTES`.
    """
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous()
        size = data.numel() * data.element_size()
        if size > _SMALL_BYTES:
            raise TreeError(f"a constructor argument of {size} bytes; at most {_SMALL_BYTES} are passed on")
        dtype = str(data.dtype).removeprefix("torch.")
        raw = data.reshape(-1).view(torch.uint8).numpy().tobytes().hex() if size else ""
        return {"t": "data", "dtype": dtype, "shape": list(data.shape), "hex": raw}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"t": type(value).__name__, "name": str(value).removeprefix("torch.")}
    if isinstance(value, dict):
        keys = list(value)
        if not all(type(key) in (str, int, bool) for key in keys):
            raise TreeError("a dict whose keys are neither text nor integers")
        return {"t": "dict", "keys": keys, "items": [describe_plain(item) for item in value.values()]}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {"t": kind, "items": [describe_plain(item) for item in value]}
    if isinstance(value, complex):
        return {"t": "complex", "real": value.real, "imag": value.imag}
    return describe(value, dense=True)[0]


def build_plain(tree: dict[str, Any]) -> Any:
    """The inverse of `describe_plain`; tensors come out on the CPU."""
    kind = tree["t"]
    if kind == "data":
        raw = bytearray.fromhex(tree["hex"])
        flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
        return flat.view(_DTYPES[tree["dtype"]]).reshape(tree["shape"]).clone()
    if kind == "dtype":
        return _DTYPES[tree["name"]]
    if kind == "device":
        return torch.device(tree["name"])
    if kind == "complex":
        return complex(tree["real"], tree["imag"])
    if kind == "value":
        return tree["value"]
    items = [build_plain(item) for item in tree["items"]]
    if kind == "dict":
        return dict(zip(tree["keys"], items, strict=True))
    return tuple(items) if kind == "tuple" else items


def leaves(tree: dict[str, Any], path: str = "output") -> list[tuple[str, dict[str, Any]]]:
    """Tensors and plain values of a description, each with a readable path."""
    if tree["t"] in ("tensor", "value"):
        return [(path, tree)]
    names = tree["keys"] if tree["t"] == "dict" else range(len(tree["items"]))
    return [leaf for name, item in zip(names, tree["items"], strict=True) for leaf in leaves(item, f"{path}[{name!r}]")]


def is_description(tree: Any, depth: int = 0) -> bool:
    """Whether plain data from a candidate has the form that `describe` gives (offsets are not looked at)."""
    if not isinstance(tree, dict) or depth > _MAX_DEPTH:
        return False
    kind = tree.get("t")
    if kind == "value":
        return "value" in tree and isinstance(tree["value"], (bool, int, float, str, type(None)))
    if kind == "tensor":
        shape = tree.get("shape")
        dtype = tree.get("dtype")
        known = isinstance(dtype, str) and dtype in _DTYPES
        return known and isinstance(shape, list) and all(type(n) is int for n in shape)
    items = tree.get("items")
    if kind not in ("list", "tuple", "dict") or not isinstance(items, list) or len(items) > _MAX_LEAVES:
        return False
    if kind == "dict":
        keys = tree.get("keys")
        if not isinstance(keys, list) or len(keys) != len(items) or not all(isinstance(k, (str, int)) for k in keys):
            return False
    return all(is_description(item, depth + 1) for item in items)


def ordered_keys(node: dict[Any, Any]) -> list[Any]:
    """Keys of a dict in an order that does not depend on how it was filled.

    Raises:
        TreeError: if they are neither text nor integers.
    """
    keys = list(dict.keys(node))
    if not all(type(key) in (str, int, bool) for key in keys):
        raise TreeError("a dict whose keys are neither text nor integers")
    return sorted(keys, key=lambda key: (type(key).__name__, key))


def skeleton(tree: dict[str, Any]) -> Any:
    """A description reduced to its containers, keys, shapes and dtypes: what two outputs must share."""
    kind = tree["t"]
    if kind == "tensor":
        return (kind, tree["dtype"], tuple(tree["shape"]))
    if kind == "value":
        return kind
    return (kind, tuple(tree.get("keys", ())), tuple(skeleton(item) for item in tree["items"]))


def _dense(shape: list[int]) -> list[int]:
    stride, step = [], 1
    for extent in reversed(shape):
        stride.append(step)
        step *= max(1, extent)
    return stride[::-1]
