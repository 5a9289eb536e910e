"""Rewards of the published systems: pure functions of an `Evaluation`.

- `kevin` -- the environment's default: correct · (0.3 + speedup).
"""

from __future__ import annotations

import math

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.result import Evaluation

__all__ = ["kevin"]


def kevin(evaluation: Evaluation, *, weight: float = 0.3, cap: float = math.inf) -> float:
    """Kevin's score of one turn: ``correct · (weight + min(speedup, cap))``, else 0.

    Deterministic given the evaluation; range 0 to ``weight + cap``. A correct submission whose speed was not
    measured (Triton's interpreter) earns `weight` alone.

    Source: Kevin (Cognition, Stanford), reward S = 0.3 · correct + correct · T_baseline / T_kernel.

    Args:
        evaluation: the verdict.
        weight: reward of correctness, at least 0.
        cap: greatest rewarded speedup, positive.

    Raises:
        InvalidOptionError: for a weight or cap outside its range.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> kevin(Evaluation("a/b", Status.CORRECT, speedup=2.0))
    2.3
    >>> kevin(Evaluation("a/b", Status.WRONG))
    0.0
    """
    if not 0 <= weight < math.inf:
        raise InvalidOptionError(f"kevin needs a weight of at least 0, got {weight!r}.")
    if not cap > 0:
        raise InvalidOptionError(f"kevin needs a positive cap, got {cap!r}.")
    if not evaluation.credited:
        return 0.0
    speedup = 0.0 if math.isnan(evaluation.speedup) else min(evaluation.speedup, cap)
    return float(weight + speedup)
