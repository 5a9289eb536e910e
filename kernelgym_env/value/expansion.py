"""Functions of the form Q(x) = sum over i of alpha_i k(c_i, x), with a Gaussian kernel.

- `rbf_kernel` -- k for all pairs of two sets of points.
- `KernelExpansion` -- the function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["KernelExpansion", "rbf_kernel"]


def rbf_kernel(one: Any, two: Any, *, scale: Any = 1.0) -> np.ndarray:
    """Gaussian similarity exp(-|a - b|^2 / 2) after both were divided by `scale`.

    Args:
        one: points, shape [n, features], or [n] for one feature.
        two: points, shape [m, features] or [m].
        scale: length scale above 0, one for all features or shape [features].

    Returns:
        Shape [n, m], between 0 and 1.

    Raises:
        ValueError: if the numbers of features differ or a scale is not above 0.

    >>> rbf_kernel([0.0], [0.0, 1.0]).round(6).tolist()
    [[1.0, 0.606531]]
    """
    a, b, length = _points(one), _points(two), np.asarray(scale, dtype=float)
    if not (length > 0).all():
        raise ValueError(f"A length scale is above 0, got {scale!r}.")
    if a.shape[1] != b.shape[1] or length.size not in (1, a.shape[1]):
        raise ValueError(
            f"Points and scales of like features needed, got {a.shape[1]} and {b.shape[1]} features, "
            f"{length.size} scales."
        )
    a, b = a / length, b / length
    # differences first: |a|^2 + |b|^2 - 2ab loses all digits for points that are close and far from 0
    distance = ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)
    return np.asarray(np.exp(-distance / 2))


@dataclass(frozen=True)
class KernelExpansion:
    """A function as a weighted sum of similarities to centres.

    Attributes:
        centres: shape [n, features] or [n].
        weights: shape [n].
        scale: length scale, see `rbf_kernel`.

    >>> q = KernelExpansion([0.0, 1.0], [2.0, -1.0])
    >>> q(0.5).round(6).tolist(), q(0.0).round(6).tolist(), q.average(0.5).tolist()
    ([0.882497], [1.393469], [0.5])
    """

    centres: Any
    weights: Any
    scale: Any = 1.0

    def __post_init__(self) -> None:
        centres, weights = _points(self.centres), np.asarray(self.weights, dtype=float)
        if weights.shape != (len(centres),) or not len(centres):
            raise ValueError(f"One weight a centre needed, got {weights.shape} for {len(centres)} centres.")
        object.__setattr__(self, "centres", centres)
        object.__setattr__(self, "weights", weights)

    def __call__(self, points: Any) -> np.ndarray:
        """The function's values, shape [points]."""
        return np.asarray(rbf_kernel(points, self.centres, scale=self.scale) @ self.weights)

    def average(self, points: Any) -> np.ndarray:
        """The weights averaged by similarity (Nadaraya-Watson), shape [points].

        It stays within the weights' range; far from all centres it goes to the weight of the nearest one.
        """
        a, b = _points(points) / self.scale, self.centres / self.scale
        exponent = -((a[:, None, :] - b[None, :, :]) ** 2).sum(-1) / 2
        share = np.exp(exponent - exponent.max(-1, keepdims=True))
        return np.asarray((share @ self.weights) / share.sum(-1))


def _points(values: Any) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    return array.reshape(-1, 1) if array.ndim < 2 else array
