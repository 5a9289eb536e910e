"""A figure that is too good is measured again, by processes that have nothing in common with the first ones.

- `Timed` -- what timing a submission takes, for as often as it is timed.
- `time_submission` -- times it; once more where its figure needs to be confirmed.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from kernelgym_env.evaluation.checking import check_again, send_weights
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.judging import Judging, Outcome
from kernelgym_env.evaluation.outside import TAMPERED
from kernelgym_env.evaluation.reference import Reference
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.speed import prepare, time_both
from kernelgym_env.evaluation.timing_rules import retest_reason, settle, timing_rule
from kernelgym_env.evaluation.workers import Worker

__all__ = ["Timed", "time_submission"]


@dataclass(frozen=True)
class Timed:
    """What timing a submission takes.

    Attributes:
        reference: the trusted side.
        contents: makes the inputs.
        rng: draws the order of blocks; seeded from the secret.
        weight_seed: of both sides' constructors.
        matched: the candidate's names of the reference's parameters.
        floor_us: least time by the device's data sheet, NaN where it is unknown.
    """

    reference: Reference
    contents: Contents
    rng: random.Random
    weight_seed: int
    matched: dict[str, str]
    floor_us: float

    def time(self, judging: Judging, twin: Worker) -> float:
        """`speed.prepare` and `speed.time_both` on it."""
        prepare(judging, twin, self.contents, self.reference)
        return time_both(judging, twin, self.contents, self.reference, self.rng)


def time_submission(judging: Judging, twin: Worker, timed: Timed) -> Worker:
    """Fill `judging.figures`, from a second measurement where the first one's figure needs to be confirmed.

    It does if it is below the floor, a jump, or at odds with the clock outside of the process. What then counts is the
    protocol's rule, see `timing_rules`; the slower one with this package's. Where clocks were at odds in the first and
    are not in the second, there is a third, and the slower of these two counts if nothing is the matter with either.

    Args:
        judging: the evaluation.
        twin: the reference's process, loading or loaded.
        timed: what is timed.

    Returns:
        The reference's process that was used last.

    Raises:
        Outcome: as `time_both` does, from either measurement; `INTEGRITY` if the clock outside of the process shows
            much more time than the one inside, in both and in a third one.
    """
    rule = timing_rule(judging.protocol.name)
    overstated = timed.time(judging, twin)
    first = judging.figures
    why = _reason(judging, timed, first, overstated)
    if not why:
        return twin
    measured = [(first, overstated)]
    twin = _once_more(judging, twin, timed, measured)
    odd = [factor > rule.retest.overstated for _, factor in measured]
    if odd[0] and (not odd[1] or min(factor for _, factor in measured) > TAMPERED):
        # on a busy machine clocks are at odds now and then, so that is neither believed at once nor forgotten at once
        twin = _once_more(judging, twin, timed, measured)
        if min(factor for _, factor in measured) > TAMPERED:
            text = "Calls take longer by a clock outside of the process than by the one inside, in three processes."
            raise Outcome(Status.INTEGRITY, text, finding="D6")
    again, cleared = _second_opinion(judging, timed, measured)
    settled = settle(first["speedup"], again["speedup"], rule, cleared=cleared)
    judging.retest = {
        "why": why,
        "first": first["speedup"],
        "again": again["speedup"],
        "counts": settled.counts,
        "confirmed": settled.confirmed,
    }
    judging.figures = {"first": first, "again": again, "": _without_speed(again)}[settled.counts]
    return twin


def _once_more(judging: Judging, twin: Worker, timed: Timed, measured: list[tuple[dict[str, Any], float]]) -> Worker:
    """Time new processes of both sides, and note the figures and by what the candidate's clock falls short.

    Returns:
        The reference's new process.
    """
    twin.stop()
    judging.give_way()
    candidate = judging.relaunch(timed.weight_seed, timed.reference.init_tree)
    twin = judging.twin(timed.reference.task.source, timed.weight_seed, timed.reference.init_tree)
    with judging.stages.time("start"):
        judging.started()
    judging.give_way()
    with judging.stages.time("start"):
        judging.attach(candidate)
        send_weights(judging, candidate, timed.reference, timed.matched)
    check_again(judging, timed.contents.mixed(), timed.reference)
    overstated = timed.time(judging, twin)
    measured.append((judging.figures, overstated))
    return twin


def _second_opinion(
    judging: Judging, timed: Timed, measured: list[tuple[dict[str, Any], float]]
) -> tuple[dict[str, Any], bool]:
    """Figures that the first ones are held against, and whether they clear the first of clocks that were at odds.

    Two further measurements do, if nothing is the matter with either. The slower one counts: who makes the clocks
    disagree where luck was bad gains nothing by another draw.
    """
    later = sorted((figures for figures, _ in measured[1:]), key=lambda figures: figures["speedup"])
    clean = not any(_reason(judging, timed, figures, factor) for figures, factor in measured[1:])
    return later[0], clean and len(later) > 1


def _reason(judging: Judging, timed: Timed, figures: dict[str, Any], overstated: float) -> str:
    """Why figures have to be measured again, if they do."""
    return retest_reason(
        figures["speedup"],
        figures["times"],
        judging.submission.previous_best,
        timed.floor_us,
        timing_rule(judging.protocol.name),
        overstated=overstated,
    )


def _without_speed(figures: dict[str, Any]) -> dict[str, Any]:
    """The times without a speedup, where none counts."""
    return {**figures, **{name: math.nan for name in ("speedup", "speedup_low", "speedup_high")}}
