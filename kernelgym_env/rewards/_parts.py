"""What several rewards share: checks of their options, and reading of an evaluation."""

from __future__ import annotations

import math

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Evaluation, Status

__all__ = ["BASELINES", "NEUTRAL", "at_least", "finite", "number_or", "positive", "speedup_over", "time_us"]

NEUTRAL = frozenset({Status.FAULT, Status.TASK_INVALID})
"""Statuses that say nothing about the submission: every reward pays 0.0."""

BASELINES = {"eager": "speedup", "compile": "speedup_compile", "graph": "speedup_graph"}
"""The field of `Evaluation` that holds the speedup over each baseline."""


def at_least(reward: str, option: str, value: float, low: float) -> None:
    """Raise `InvalidOptionError` unless ``low <= value < inf``."""
    if not low <= value < math.inf:
        raise InvalidOptionError(f"{reward} needs a {option} of at least {low:g}, got {value!r}.")


def positive(reward: str, option: str, value: float) -> None:
    """Raise `InvalidOptionError` unless ``value > 0``; infinity is allowed."""
    if not value > 0:
        raise InvalidOptionError(f"{reward} needs a positive {option}, got {value!r}.")


def finite(reward: str, **options: float) -> None:
    """Raise `InvalidOptionError` for an option that is NaN or infinite."""
    for option, value in options.items():
        if not math.isfinite(value):
            raise InvalidOptionError(f"{reward} needs a finite {option}, got {value!r}.")


def number_or(value: float, absent: float) -> float:
    """`value`, or `absent` where it is NaN."""
    return absent if math.isnan(value) else value


def time_us(evaluation: Evaluation, name: str) -> float:
    """The median time of `name` (see `Evaluation.times`) in microseconds, NaN where it was not measured."""
    return evaluation.times[name].median_us


def speedup_over(evaluation: Evaluation, baseline: str) -> float:
    """The speedup over a baseline, NaN where it was not measured.

    Raises:
        UnknownNameError: for a baseline that is not in `BASELINES`.
    """
    if baseline not in BASELINES:
        raise unknown_name("baseline", baseline, BASELINES)
    return float(getattr(evaluation, BASELINES[baseline]))
