"""Answers of timed calls that are still to be compared with the reference's.

To compare one takes the reference's computation twice, once in float64, and so more of a device's time than the call
itself. Nobody else can time meanwhile, so it is done behind the measurement, on copies that no process of a submission
can reach. Which answers are kept for it is drawn while they come, each as likely as any other. Of large ones there is
room for too few of them; these are compared between two blocks of calls.

- `Owed` -- keeps and compares them.
- `Answer` -- one of them.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelgym_env.evaluation.judging import Judging, Outcome
from kernelgym_env.evaluation.reference import Case, Reference
from kernelgym_env.evaluation.result import Status

__all__ = ["Answer", "Owed"]

_FEWEST, _MOST, _MOST_AT_ONCE = 3, 64, 4
_HELD_BYTES, _HELD_SHARE = 1 << 30, 64
_TIME_SHARE = 0.25
_CHANCE_AT_FIRST, _CHANCE = 0.7, 0.5


@dataclass(frozen=True)
class Answer:
    """What one call gave.

    Attributes:
        told: how the worker describes it.
        lying: a copy of its bytes.
        case: what the call was given; made when it is asked for.
    """

    told: dict[str, Any]
    lying: torch.Tensor
    case: Callable[[], Case]


class Owed:
    """The answers of one measurement that are to be compared.

    Args:
        judging: the evaluation.
        reference: the trusted side.
        command_bytes: what is held for the answers of one command, inputs included.
        rng: draws them; seeded from the secret.
    """

    def __init__(self, judging: Judging, reference: Reference, command_bytes: int, rng: random.Random) -> None:
        self._judging = judging
        self._reference = reference
        self._rng = rng
        room = _room_bytes(judging.device) // max(1, command_bytes)
        self._most = min(room, _MOST) if room >= _FEWEST else 0
        self._held: list[list[Answer]] = []
        self._sure: list[Answer] = []
        self._commands = 0
        self._compared = 0
        self._comparing_s = 0.0
        self._began = math.nan

    def offer(self, answers: Callable[[], list[Answer]]) -> None:
        """Keep the answers of a further command, or do not.

        Args:
            answers: takes the copies; called if they are kept.
        """
        if math.isnan(self._began):
            self._began = time.perf_counter()
        self._commands += 1
        if self._most == 0:
            if len(self._held) < _MOST_AT_ONCE and self._is_time():
                self._held.append(answers())
        elif len(self._held) < self._most:
            self._held.append(answers())
        elif (place := self._rng.randrange(self._commands)) < self._most:
            self._held[place] = answers()

    def insist(self, answer: Answer) -> None:
        """Keep one that is compared in any case."""
        self._sure.append(answer)

    def between(self) -> None:
        """Compare what there is no room to keep, where it disturbs neither side more than the other.

        Raises:
            Outcome: if one is wrong.
        """
        if self._most == 0:
            for answers in self._held:
                self._refuse_wrong(answers)
            self._held.clear()

    def settle(self, measuring_s: float) -> None:
        """Compare the others in an order that is drawn, and all that were insisted on.

        Of the others a few, and more while that takes no more than a part of the time that measuring took. Other judges
        may time meanwhile.

        Args:
            measuring_s: seconds that it took.

        Raises:
            Outcome: if one is wrong.
        """
        self._rng.shuffle(self._held)
        while self._held and (self._compared < _FEWEST or self._comparing_s < _TIME_SHARE * measuring_s):
            self._judging.give_way()
            self._refuse_wrong(self._held.pop())
        while self._sure:
            self._judging.give_way()
            self._refuse_wrong([self._sure.pop()])

    def _is_time(self) -> bool:
        """Whether to compare once more at once; without some of the first, so that none is known to be let off."""
        if self._compared < _FEWEST:
            return self._rng.random() < _CHANCE_AT_FIRST
        spent = time.perf_counter() - self._began
        return self._comparing_s < _TIME_SHARE * spent and self._rng.random() < _CHANCE

    def _refuse_wrong(self, answers: list[Answer]) -> None:
        start = time.perf_counter()
        for answer in answers:
            case = answer.case()
            self._reference.expect(case)
            verdict = self._judging.compare(answer.told, case, self._reference, answer.lying)
            if not verdict.ok:
                raise Outcome(Status.WRONG, f"In a timed call: {verdict.message}", finding="D8")
            self._compared += 1
        self._comparing_s += time.perf_counter() - start


def _room_bytes(device: str) -> int:
    if device == "cpu":
        return _HELD_BYTES
    return min(_HELD_BYTES, torch.cuda.get_device_properties(device).total_memory // _HELD_SHARE)
