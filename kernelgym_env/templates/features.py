"""Tasks and results as numbers, for agents that know no text.

- `TASK_FEATURES`, `task_features` -- what a task is: its pattern and its sizes.
- `RESULT_FEATURES`, `result_features` -- what became of the last turn, and where the episode stands.

Every number lies in -1 to 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelgym_env.evaluation.result import Status
from kernelgym_env.tasks.model import Task
from kernelgym_env.templates.expressions import walk
from kernelgym_env.templates.patterns import FAMILIES, Pattern, recognise

__all__ = ["RESULT_FEATURES", "TASK_FEATURES", "result_features", "task_features"]

_SIZES = ("elements", "outer", "length", "inner", "batch", "m", "n", "k")
TASK_FEATURES = (
    *(f"is_{family}" for family in FAMILIES),
    *(f"log2_{name}" for name in _SIZES),
    *(f"{name}_by_{step}" for name in ("length", "n") for step in (16, 128)),
    "operations",
    "passes",
    "weights",
)
"""Names of the numbers of `task_features`. A logarithm is divided by 16, less 1: 0 is 2^16.
``length_by_16`` is 1 where 16 divides it."""

RESULT_FEATURES = (
    "started",
    *(f"was_{status.value}" for status in Status),
    "log2_speedup",
    "log2_best",
    "has_best",
    "turn",
    "turns_left",
)
"""Names of the numbers of `result_features`. Logarithms are divided by 8 and kept within -1 to 1; ``turn`` and
``turns_left`` are shares of the budget."""


def task_features(task: Task) -> NDArray[np.float32]:
    """What a task is, float32 [len(TASK_FEATURES)]; zeros for one that no template fits.

    >>> from kernelgym_env.tasks import load_task
    >>> found = dict(zip(TASK_FEATURES, task_features(load_task("KernelGym/RowSoftmax")).tolist()))
    >>> found["is_rows"], found["log2_length"], found["length_by_128"]
    (1.0, -0.25, 1.0)
    """
    return _task_features(task).copy()


@functools.lru_cache(maxsize=1024)
def _task_features(task: Task) -> NDArray[np.float32]:
    pattern = recognise(task)
    if pattern is None:
        return np.zeros(len(TASK_FEATURES), dtype=np.float32)
    sizes = _sizes(pattern)
    parts = sum(sum(1 for part in walk(node) if part.args) for node in pattern.formulas)
    values = [float(pattern.family == family) for family in FAMILIES]
    values += [math.log2(max(sizes[name], 1)) / 16 - 1 for name in _SIZES]
    values += [float(sizes[name] % step == 0) for name in ("length", "n") for step in (16, 128)]
    values += [min(parts / 32, 1.0), min(len(pattern.passes) / 4, 1.0), min(len(pattern.weights) / 4, 1.0)]
    return np.clip(np.array(values, dtype=np.float32), -1, 1)


def result_features(info: Mapping[str, Any]) -> NDArray[np.float32]:
    """Where an episode stands, float32 [len(RESULT_FEATURES)].

    Args:
        info: of `KernelEnv`.

    >>> info = {"status": "correct", "speedup": 4.0, "best_speedup": 4.0, "turn": 1, "turns_left": 3}
    >>> found = dict(zip(RESULT_FEATURES, result_features(info).tolist()))
    >>> found["was_correct"], found["log2_speedup"], found["turns_left"]
    (1.0, 0.25, 0.75)
    """
    status = str(info["status"])
    turn, left = float(info["turn"]), float(info["turns_left"])
    budget = max(turn + left, 1.0)
    best = float(info["best_speedup"])
    values = [float(status != ""), *(float(status == known.value) for known in Status)]
    values += [
        _octaves(float(info["speedup"])),
        _octaves(best),
        float(not math.isnan(best)),
        turn / budget,
        left / budget,
    ]
    return np.array(values, dtype=np.float32)


def _octaves(speedup: float) -> float:
    return 0.0 if math.isnan(speedup) or speedup <= 0 else min(max(math.log2(speedup) / 8, -1.0), 1.0)


def _sizes(pattern: Pattern) -> dict[str, int]:
    product = pattern.product
    return {
        "elements": math.prod(pattern.shape),
        "outer": pattern.outer if pattern.count else 1,
        "length": pattern.length if pattern.count else (pattern.shape[-1] if pattern.shape else 1),
        "inner": pattern.inner if pattern.count else 1,
        "batch": product.batch if product else 1,
        "m": product.m if product else 1,
        "n": product.n if product else 1,
        "k": product.k if product else 1,
    }
