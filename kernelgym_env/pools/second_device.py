"""A figure that was measured again is measured once more on another device of the same kind, where there is one.

New processes on the same device share its memory, its clocks and its driver's state with the first ones; another
device shares nothing.

- `wants_another` -- whether an evaluation is to be repeated on another device.
- `settled` -- what comes of both.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.timing_rules import settle, timing_rule

__all__ = ["settled", "wants_another"]


def wants_another(evaluation: Evaluation) -> bool:
    """Whether a figure was so good that it was measured again, and stood."""
    return (
        evaluation.status is Status.CORRECT
        and bool(evaluation.provenance.get("retest"))
        and math.isfinite(evaluation.speedup)
        and evaluation.speedup > 0
    )


def settled(first: Evaluation, second: Evaluation) -> Evaluation:
    """What counts of two evaluations of one submission on two devices, by the protocol's rule of the re-test.

    A second that is not correct counts, a fault too: a submission can bring one about, and must not escape by it. In
    ``provenance["retest"]`` stands ``second_device``: its name, its speedup and status, and whether both agree.

    Args:
        first: correct and with a speedup.
        second: of the same submission on another device.
    """
    told: dict[str, Any] = {"device": second.device, "status": second.status.value, "speedup": second.speedup}
    if second.status is not Status.CORRECT:
        return _with(second, {**told, "confirmed": False}, first)
    result = settle(first.speedup, second.speedup, timing_rule(first.protocol))
    told["confirmed"] = result.confirmed
    if result.counts == "":
        return _with(replace(first, speedup=math.nan, speedup_low=math.nan, speedup_high=math.nan), told, first)
    return _with(second if result.counts == "again" else first, told, first)


def _with(evaluation: Evaluation, told: dict[str, Any], first: Evaluation) -> Evaluation:
    retest = {**first.provenance["retest"], "first_device": first.device, "second_device": told}
    return replace(evaluation, provenance={**evaluation.provenance, "retest": retest})
