"""Infos of many environments as gymnasium's vector environments give them.

- `stack_infos` -- one dict of arrays with masks from a dict for each environment.

Gymnasium's own way makes a new mask for each key of each environment, which is quadratic in their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["stack_infos"]

_PLAIN = (int, float, bool)


def stack_infos(infos: Sequence[tuple[int, Mapping[str, Any]]], size: int) -> dict[str, Any]:
    """Stack infos as `gymnasium.vector.VectorEnv` defines it.

    A key holds an array of all environments' values, and the key with ``_`` before it a mask of those that have one.
    Numbers and arrays become arrays of their type with zeros where there is none, dicts are stacked in their turn, and
    anything else becomes an array of objects with None. Values of different types, which gymnasium would convert to
    the first one's or refuse, become objects.

    Args:
        infos: pairs of an environment's index and its info; an index may come twice, with different keys.
        size: number of environments.

    >>> stacked = stack_infos([(0, {"speedup": 2.0}), (2, {"speedup": 0.5, "status": "correct"})], 3)
    >>> stacked["speedup"], stacked["_speedup"]
    (array([2. , 0. , 0.5]), array([ True, False,  True]))
    >>> stacked["status"]
    array([None, None, 'correct'], dtype=object)
    """
    columns: dict[str, tuple[list[int], list[Any]]] = {}
    for index, info in infos:
        for key, value in info.items():
            indices, values = columns.setdefault(key, ([], []))
            indices.append(index)
            values.append(value)
    stacked: dict[str, Any] = {}
    for key, (indices, values) in columns.items():
        mask = np.zeros(size, dtype=np.bool_)
        mask[indices] = True
        stacked[key] = _column(key, indices, values, size)
        stacked[f"_{key}"] = mask
    return stacked


def _column(key: str, indices: list[int], values: list[Any], size: int) -> Any:
    first = values[0]
    if key != "final_obs":
        if all(isinstance(value, dict) for value in values):
            return stack_infos(list(zip(indices, values, strict=True)), size)
        same = all(type(value) is type(first) for value in values)
        if same and (type(first) in _PLAIN or isinstance(first, np.number)):
            numbers = np.zeros(size, dtype=type(first))
            numbers[indices] = values
            return numbers
        if same and isinstance(first, np.ndarray) and len({(value.shape, value.dtype) for value in values}) == 1:
            arrays = np.zeros((size, *first.shape), dtype=first.dtype)
            arrays[indices] = values
            return arrays
    objects = np.full(size, fill_value=None, dtype=object)
    for index, value in zip(indices, values, strict=True):
        objects[index] = value  # one by one: numpy would take a list of lists apart
    return objects
