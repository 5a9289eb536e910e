"""Rewards of Kevin, CUDA Agent, CUDA-L1, Makora and TritonRL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, NamedTuple

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.rewards._parts import (
    BASELINES,
    NEUTRAL,
    at_least,
    finite,
    number_or,
    positive,
    speedup_over,
    time_us,
)

__all__ = [
    "CUDA_AGENT",
    "Level",
    "PlanCode",
    "cuda_l1",
    "kevin",
    "makora",
    "milestone",
    "round_toward_one",
    "tritonrl",
    "tritonrl_code",
    "tritonrl_plan",
]


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
    at_least("kevin", "weight", weight, 0)
    positive("kevin", "cap", cap)
    if not evaluation.credited:
        return 0.0
    return float(weight + min(number_or(evaluation.speedup, 0.0), cap))


class Level(NamedTuple):
    """One step of `milestone`.

    Attributes:
        value: what is paid when the step is reached.
        margin: share of each baseline's time that must be saved, 0 to 1 (1 excluded).
        baselines: the baselines that must all be beaten: ``eager``, ``compile``, ``graph``.
    """

    value: float
    margin: float
    baselines: tuple[str, ...]


CUDA_AGENT = (Level(2.0, 0.05, ("eager",)), Level(3.0, 0.05, ("eager", "compile")))
"""CUDA Agent's steps: 2 for beating eager, 3 for beating eager and torch.compile, each by more than 5% of its time."""

_ROUNDING = 1e-12
"""A time this near to an edge, relatively, lies on it: ``0.95`` of ``1.0`` and its like are not exact in floats."""


def milestone(
    evaluation: Evaluation,
    *,
    levels: Sequence[Level | Sequence[Any]] = CUDA_AGENT,
    correct: float = 1.0,
    failed: float = -1.0,
) -> float:
    """Steps of speed: the greatest value among the levels reached, else `correct`; `failed` if not correct.

    A level is reached when ``t < (1 - margin) · t0`` for the times ``t`` of the submission and ``t0`` of *each* of its
    baselines. The inequality is strict, and `margin` is a share of time: 5% less time is a speedup above 1.0526, not
    1.05. Times come from `Evaluation.times`, since a speedup may have been rounded. A level whose times were not all
    measured is not reached, so without a compile baseline CUDA Agent's 3 is never paid.

    Deterministic given the evaluation; range `failed` to the greatest value. `fault` and `task_invalid` pay 0.0.

    Source: CUDA Agent (ByteDance Seed, Tsinghua), eq. 1: r is -1, 1, 2 or 3.

    Args:
        evaluation: the verdict.
        levels: `Level` or plain ``[value, margin, baselines]``, in any order.
        correct: reward of a correct submission that reaches no level.
        failed: reward of one that is not correct, at most `correct`.

    Raises:
        InvalidOptionError: for a margin outside 0 to 1, a level without baselines, or values that do not satisfy
            ``failed <= correct <= value``.
        UnknownNameError: for an unknown baseline.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status, Timing
    >>> def run(t, eager, compiled):
    ...     times = {"candidate": Timing(t), "eager": Timing(eager), "compile": Timing(compiled)}
    ...     return milestone(Evaluation("a/b", Status.CORRECT, times=times))
    >>> run(1, 1.3, 1.06), run(1, 1.3, 1.05), run(1, 1.04, 2), run(0.95, 1, 1)
    (3.0, 2.0, 1.0, 1.0)
    >>> milestone(Evaluation("a/b", Status.WRONG))
    -1.0
    """
    steps = [_level(level) for level in levels]
    finite("milestone", correct=correct, failed=failed)
    lowest = min((step.value for step in steps), default=correct)
    if not failed <= correct <= lowest:
        raise InvalidOptionError(
            f"milestone needs failed <= correct <= every level's value, got {failed!r}, {correct!r}, {lowest!r}."
        )
    if evaluation.status in NEUTRAL:
        return 0.0
    if not evaluation.credited:
        return float(failed)
    time = time_us(evaluation, "candidate")
    reached = [
        step.value for step in steps if all(_beats(time, evaluation, name, step.margin) for name in step.baselines)
    ]
    return float(max(reached, default=correct))


def _level(given: Level | Sequence[Any]) -> Level:
    try:
        value, margin, baselines = given
        step = Level(float(value), float(margin), (baselines,) if isinstance(baselines, str) else tuple(baselines))
    except (TypeError, ValueError):
        raise InvalidOptionError(f"A level of milestone is [value, margin, baselines], got {given!r:.200}.") from None
    finite("milestone", value=step.value)
    if not 0 <= step.margin < 1:
        raise InvalidOptionError(f"A level's margin is a share of time from 0 to 1 (1 excluded), got {margin!r}.")
    if not step.baselines:
        raise InvalidOptionError(f"A level of milestone needs a baseline: {', '.join(BASELINES)}.")
    for name in step.baselines:
        if name not in BASELINES:
            raise unknown_name("baseline", name, BASELINES)
    return step


def _beats(time: float, evaluation: Evaluation, baseline: str, margin: float) -> bool:
    return time < (1 - margin) * time_us(evaluation, baseline) * (1 - _ROUNDING)  # NaN compares false


def cuda_l1(evaluation: Evaluation, *, decimals: int | None = None) -> float:
    """The speedup of a correct submission, 0 for any other; to be normalised within its group and clipped.

    Deterministic given the evaluation; range 0 to infinity. A speed that was not measured pays 0. The normalisation
    is `kernelgym_env.credit.clipped_zscores`.

    Source: CUDA-L1 (DeepReinforce), reward t_ref / t_candidate. The paper rounds it to two decimals towards 1
    (``decimals=2``); the released evaluator does not round. What an unsuccessful kernel earns is not given there: it is
    excluded from the exemplars, and 0 is this package's choice.

    Args:
        evaluation: the verdict.
        decimals: round towards 1 to so many decimals; None does not round.

    Raises:
        InvalidOptionError: for decimals that are no whole number of at least 0.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> cuda_l1(Evaluation("a/b", Status.CORRECT, speedup=1.118), decimals=2)
    1.11
    """
    if decimals is not None:
        _check_decimals("cuda_l1", decimals)
    if not evaluation.credited:
        return 0.0
    speedup = float(number_or(evaluation.speedup, 0.0))
    return speedup if decimals is None else round_toward_one(speedup, decimals)


def _check_decimals(function: str, decimals: int) -> None:
    if isinstance(decimals, bool) or not isinstance(decimals, int) or decimals < 0:
        raise InvalidOptionError(f"{function} needs decimals that are a whole number of at least 0, got {decimals!r}.")


def round_toward_one(speedup: float, decimals: int = 2) -> float:
    """Round a speedup towards 1, so that rounding never flatters either side.

    Source: CUDA-L1, measurement of the reward.

    Args:
        speedup: a ratio; NaN and infinity are returned as they are.
        decimals: number of decimals, at least 0.

    Raises:
        InvalidOptionError: for decimals that are no whole number of at least 0.

    >>> [round_toward_one(s) for s in (1.118, 0.992, 0.985, 1.009, 3.499, 1.15)]
    [1.11, 1.0, 0.99, 1.0, 3.49, 1.15]
    """
    _check_decimals("round_toward_one", decimals)
    if not math.isfinite(speedup):
        return speedup
    exact = Decimal(repr(float(speedup)))  # the decimal that is meant: 100 · 1.15 is 114.99… in floats
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)  # as it is finite
    if -exponent <= decimals:
        return float(speedup)  # nothing to round, and `quantize` has no room for numbers with many digits
    return float(exact.quantize(Decimal(1).scaleb(-decimals), ROUND_FLOOR if exact >= 1 else ROUND_CEILING))


def makora(evaluation: Evaluation, *, delta: float = 1.8, baseline: str = "compile") -> float:
    """``sigmoid(1 + max(0, s) - delta)`` of the speedup ``s`` over torch.compile, 0 if not correct.

    Deterministic given the evaluation; range 0 to 1, and at least 0.310 for a correct submission with the default
    delta. Where the baseline was not measured, ``s`` is 0: it is not replaced by another baseline.

    Source: Makora (GPT-5 fine-tuned for Triton), reward with delta 1.8 against TorchInductor.

    Args:
        evaluation: the verdict.
        delta: shift of the sigmoid.
        baseline: ``compile`` as published, ``eager`` or ``graph``.

    Raises:
        InvalidOptionError: for a delta that is not finite.
        UnknownNameError: for an unknown baseline.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> round(makora(Evaluation("a/b", Status.CORRECT, speedup_compile=1.5)), 4)
    0.6682
    """
    finite("makora", delta=delta)
    speedup = max(0.0, number_or(speedup_over(evaluation, baseline), 0.0))
    if not evaluation.credited:
        return 0.0
    exponent = 1.0 + speedup - delta
    if exponent >= 0:
        return 1.0 / (1.0 + math.exp(-exponent))
    power = math.exp(exponent)
    return power / (1.0 + power)


class PlanCode(NamedTuple):
    """TritonRL's two rewards of one reply.

    Attributes:
        plan: for the tokens of the reasoning.
        code: for the tokens of the source.
    """

    plan: float
    code: float


def tritonrl(evaluation: Evaluation, *, cap: float = math.inf) -> PlanCode:
    """TritonRL's rewards: the plan's tokens earn the speedup, the code's tokens earn correctness.

    Each is multiplied by validity (it parses, and its own kernel does the work), which here is the status: anything
    but `correct` pays 0 for both. A speed that was not measured pays the plan 0.

    Deterministic given the evaluation; range 0 to `cap` and 0 to 1. The published loss is
    ``alpha · F_plan + F_code`` with alpha about 0.1, each with its own group-relative advantage.

    Source: TritonRL (CMU, AWS), hierarchical reward decomposition. One re-implementation caps the speedup at 2; whether
    the paper does is unverified, so the default is no cap.

    Args:
        evaluation: the verdict.
        cap: greatest rewarded speedup, positive.

    Raises:
        InvalidOptionError: for a cap that is not positive.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> tritonrl(Evaluation("a/b", Status.CORRECT, speedup=2.5), cap=2.0)
    PlanCode(plan=2.0, code=1.0)
    """
    positive("tritonrl", "cap", cap)
    if not evaluation.credited:
        return PlanCode(0.0, 0.0)
    return PlanCode(float(min(number_or(evaluation.speedup, 0.0), cap)), 1.0)


def tritonrl_plan(evaluation: Evaluation, *, cap: float = math.inf) -> float:
    """The first number of `tritonrl`: valid · speedup, for the tokens of the plan; range 0 to `cap`.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> tritonrl_plan(Evaluation("a/b", Status.CORRECT, speedup=2.5))
    2.5
    """
    return tritonrl(evaluation, cap=cap).plan


def tritonrl_code(evaluation: Evaluation) -> float:
    """The second number of `tritonrl`: valid · correct, for the tokens of the code; 0 or 1.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> tritonrl_code(Evaluation("a/b", Status.CORRECT, speedup=2.5))
    1.0
    """
    return tritonrl(evaluation).code
