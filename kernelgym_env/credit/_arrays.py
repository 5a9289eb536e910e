"""Arguments as NumPy arrays, and their checks.

A torch tensor is recognised without importing torch: where torch was not imported, there is none.
"""

from __future__ import annotations

import numbers
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelgym_env.errors import InvalidOptionError

__all__ = [
    "ArrayLike",
    "Bools",
    "Floats",
    "Ints",
    "bools",
    "floats",
    "integers",
    "is_number",
    "plain",
    "rate",
    "require_finite",
]

ArrayLike = Any
"""An array, a nested sequence of numbers, or a torch tensor."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def _is_tensor(value: object) -> bool:
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def _without_tensors(value: ArrayLike, name: str) -> ArrayLike:
    """Nested lists with arrays in place of tensors, which NumPy cannot read where they need a gradient."""
    if _is_tensor(value):
        return plain(value, name)
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is None or not isinstance(value, (list, tuple)):
        return value
    # flat lists of numbers stay as they are: they may be long
    nested = any(isinstance(item, (list, tuple, tensor)) for item in value)
    return [_without_tensors(item, name) for item in value] if nested else value


def plain(value: ArrayLike, name: str) -> NDArray[Any]:
    """`value` as an array of its own kind of number; tensors come from any device, detached.

    Raises:
        InvalidOptionError: for rows of different lengths.

    >>> plain([[1, 2], [3, 4]], "scores").shape
    (2, 2)
    """
    if _is_tensor(value):
        tensor: Any = value
        tensor = tensor.detach().cpu()
        return np.asarray((tensor.double() if tensor.is_floating_point() else tensor).numpy())
    value = _without_tensors(value, name)
    try:
        return np.asarray(value)
    except ValueError:
        raise InvalidOptionError(
            f"{name} must have rows of equal length; kernelgym_env.credit.pad makes them so and gives the mask."
        ) from None


def floats(value: ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> Floats:
    """`value` as float64, a copy.

    Args:
        value: numbers.
        name: of the argument, for errors.
        shape: what it must have; None allows any.

    Raises:
        InvalidOptionError: if it does not hold numbers, or has another shape.
    """
    array = plain(value, name)
    if array.dtype.kind not in "biuf":
        raise InvalidOptionError(f"{name} must hold numbers, got {array.dtype} ({value!r:.100}).")
    _check_shape(array, name, shape)
    return array.astype(np.float64)


def integers(value: ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> Ints:
    """`value` as int64; see `floats`."""
    array = plain(value, name)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidOptionError(f"{name} must hold whole numbers, got {array.dtype} ({value!r:.100}).")
    _check_shape(array, name, shape)
    return array.astype(np.int64)


def bools(value: ArrayLike | None, name: str, shape: tuple[int, ...]) -> Bools:
    """`value` as booleans, all True for None; numbers must be 0 or 1. See `floats`."""
    if value is None:
        return np.ones(shape, dtype=np.bool_)
    array = plain(value, name)
    _check_shape(array, name, shape)
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise InvalidOptionError(f"{name} must hold True and False (or 1 and 0), got {value!r:.100}.")
    return array.astype(np.bool_)


def _check_shape(array: NDArray[Any], name: str, shape: tuple[int, ...] | None) -> None:
    if shape is not None and array.shape != shape:
        raise InvalidOptionError(f"{name} must have the shape {shape}, got {array.shape}.")


def require_finite(array: Floats, mask: Bools, name: str) -> None:
    """Raise `InvalidOptionError` if `array` holds NaN or infinity where `mask` is True."""
    bad = np.argwhere(~np.isfinite(array) & mask)
    if len(bad):
        place = tuple(int(index) for index in bad[0])
        raise InvalidOptionError(
            f"{name}[{', '.join(map(str, place))}] is {array[place]}; leave such turns out with mask (False there)."
        )


def rate(value: float, name: str) -> float:
    """`value` as a float from 0 to 1.

    Raises:
        InvalidOptionError: if it is none.
    """
    if not is_number(value) or not 0 <= value <= 1:
        raise InvalidOptionError(f"{name} must be a number from 0 to 1, got {value!r:.100}.")
    return float(value)


def is_number(value: object) -> bool:
    """Whether `value` is a single number: of Python, NumPy or torch.

    >>> is_number(0.4), is_number(np.float32(0.4)), is_number("0.4"), is_number(None)
    (True, True, False, False)
    """
    if isinstance(value, np.ndarray) or _is_tensor(value):
        return getattr(value, "ndim", 1) == 0
    return isinstance(value, (numbers.Real, np.bool_))
