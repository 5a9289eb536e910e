"""The three rewards in KernelGYM's code, one of which is Dr. Kernel's."""

from __future__ import annotations

from collections.abc import Sequence

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.rewards._parts import NEUTRAL, at_least, finite, number_or, positive

__all__ = ["TIERS", "dr_kernel", "kernelgym_tiers", "kernelgym_weighted"]

_SCALES = {"paper": 1.0, "released": 0.5}


def dr_kernel(
    evaluation: Evaluation,
    *,
    form: str = "paper",
    cap: float = 3.0,
    lower: float = 0.0,
    coverage_weight: float | None = None,
) -> float:
    """Correctness, capped speedup and coverage, added up; 0 if not correct.

    - ``form="paper"``: ``1 + min(s, cap) + coverage``, range 0 to ``2 + cap``.
    - ``form="released"``: half of that, ``0.5 + 0.5 · min(s, cap) + 0.5 · coverage``.

    A speed or a coverage that was not measured adds 0. Deterministic given the evaluation.

    Coverage is the share of device time in the submission's own kernels. The release adds the profiler's CPU time to
    the denominator, so its figure is smaller than the paper's and than this package's.

    Source: Dr. Kernel (HKUST, TikTok), R = C + C · min(T_ref / T_k, 3) + C · PR; KernelGYM, `calculate_reward_speedup`.

    Args:
        evaluation: the verdict.
        form: ``paper`` or ``released``.
        cap: greatest rewarded speedup, positive.
        lower: a speedup below it counts as 0 (in the release; its default too).
        coverage_weight: weight of the coverage, at least 0; None is the form's own, 1 or 0.5. With 0 there is no
            profiling reward. KernelGYM's configuration file has 0.25, its training scripts 0.5.

    Raises:
        UnknownNameError: for an unknown form.
        InvalidOptionError: for an option outside its range.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> fused = Evaluation("a/b", Status.CORRECT, speedup=4.2, coverage=0.8615)
    >>> round(dr_kernel(fused), 6), round(dr_kernel(fused, form="released"), 6)
    (4.8615, 2.43075)
    """
    if form not in _SCALES:
        raise unknown_name("form of dr_kernel", form, _SCALES)
    positive("dr_kernel", "cap", cap)
    at_least("dr_kernel", "lower bound", lower, 0)
    scale = _SCALES[form]
    weight = scale if coverage_weight is None else coverage_weight
    at_least("dr_kernel", "coverage_weight", weight, 0)
    if not evaluation.credited:
        return 0.0
    speedup = min(number_or(evaluation.speedup, 0.0), cap)
    if speedup < lower:
        speedup = 0.0
    return float(scale + scale * speedup + weight * number_or(evaluation.coverage, 0.0))


TIERS = ((3.0, 1.0), (2.0, 0.8), (1.5, 0.6), (1.2, 0.4), (1.0, 0.2))
"""Pairs of a speedup and what it pays, fastest first."""


def kernelgym_tiers(
    evaluation: Evaluation,
    *,
    tiers: Sequence[Sequence[float]] = TIERS,
    slower: float = -0.1,
    wrong: float = -0.3,
    compile_error: float = -0.5,
    failed: float = -1.0,
) -> float:
    """Steps of speed with a penalty for each kind of failure.

    A correct submission earns the value of the first tier whose speedup it reaches (``>=``), `slower` below the last or
    where its speed was not measured. Wrong values and exceptions cost `wrong`, a refused source `compile_error`;
    everything else that fails (no entry class, a timeout, a crash, another's kernels, an attack) `failed`.

    Deterministic given the evaluation; range `failed` to the greatest tier. `fault` and `task_invalid` pay 0.0.

    Source: KernelGYM, `calculate_reward_like_kernel`; not the published reward. In the release an exception while a
    source is loaded ends the task as failed and so costs 1, and Triton's compile errors come up at the first call and
    so cost 0.3: the 0.5 is seldom seen there. Here the status decides.

    Args:
        evaluation: the verdict.
        tiers: pairs of a speedup and a value, in any order.
        slower: correct, but below every tier.
        wrong: for the statuses `wrong` and `runtime_error`.
        compile_error: for the status `compile_error`.
        failed: for every other failure.

    Raises:
        InvalidOptionError: for values that are not finite, or tiers that are not pairs.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> [kernelgym_tiers(Evaluation("a/b", Status.CORRECT, speedup=s)) for s in (0.9, 1.0, 1.7, 3.0)]
    [-0.1, 0.2, 0.6, 1.0]
    >>> [kernelgym_tiers(Evaluation("a/b", s)) for s in (Status.WRONG, Status.COMPILE_ERROR, Status.POLICY)]
    [-0.3, -0.5, -1.0]
    """
    finite("kernelgym_tiers", slower=slower, wrong=wrong, compile_error=compile_error, failed=failed)
    try:
        steps = sorted(((float(edge), float(value)) for edge, value in tiers), reverse=True)
    except (TypeError, ValueError):
        raise InvalidOptionError(f"tiers must be pairs of a speedup and a value, got {tiers!r:.200}.") from None
    for edge, value in steps:
        finite("kernelgym_tiers", edge=edge, value=value)
    status = evaluation.status
    if status in NEUTRAL:
        return 0.0
    if status is Status.COMPILE_ERROR:
        return float(compile_error)
    if status in (Status.WRONG, Status.RUNTIME_ERROR):
        return float(wrong)
    if not evaluation.credited:
        return float(failed)
    return next((value for edge, value in steps if evaluation.speedup >= edge), float(slower))  # NaN compares false


def kernelgym_weighted(evaluation: Evaluation, *, edge: float = 1.01, coverage_weight: float = 0.0) -> float:
    """``0.5 + 0.5 · [speedup >= edge] + coverage_weight · coverage``, 0 if not correct.

    A speed or a coverage that was not measured adds 0. Deterministic given the evaluation; range 0 to
    ``1 + coverage_weight``.

    Source: KernelGYM, `calculate_reward_weighted`, the default of its configuration file, where the coverage has the
    weight 0.25 and is switched off; not the published reward.

    Args:
        evaluation: the verdict.
        edge: least speedup that counts as faster, positive.
        coverage_weight: weight of the coverage, at least 0.

    Raises:
        InvalidOptionError: for an option outside its range.

    >>> from kernelgym_env.evaluation.result import Evaluation, Status
    >>> [kernelgym_weighted(Evaluation("a/b", Status.CORRECT, speedup=s)) for s in (1.0, 1.01)]
    [0.5, 1.0]
    """
    positive("kernelgym_weighted", "edge", edge)
    at_least("kernelgym_weighted", "coverage_weight", coverage_weight, 0)
    if not evaluation.credited:
        return 0.0
    faster = 0.5 if evaluation.speedup >= edge else 0.0  # NaN compares false
    return 0.5 + faster + coverage_weight * number_or(evaluation.coverage, 0.0)
