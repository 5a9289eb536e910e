"""Kernel-based value functions, for policies that choose launch parameters from few evaluations.

- `rbf_kernel` -- similarity of two sets of points.
- `KernelExpansion` -- a function as a weighted sum of similarities.
"""

from __future__ import annotations

from kernelgym_env.value.expansion import KernelExpansion, rbf_kernel

__all__ = ["KernelExpansion", "rbf_kernel"]
