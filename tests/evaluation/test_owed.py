"""Answers that are kept to be compared: which ones, when, and that wrong ones are told."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from programs import task

from kernelgym_env.evaluation.judging import Judging, Outcome, Stages
from kernelgym_env.evaluation.owed import _HELD_BYTES, _MOST, Answer, Owed
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.reference import Case, Reference
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.session import Session
from kernelgym_env.evaluation.submission import Submission

TASK = task("        return args[0] * 2", "[torch.randn(8, 8)]")
LONG_S = 1e6
LARGE = _HELD_BYTES  # of which there is no room for three


class Evaluation:
    """One in which nothing runs but the reference."""

    def __init__(self, session: Session) -> None:
        protocol = get_protocol("strict")
        submission = Submission(TASK, "class ModelNew: ...", device="cpu", protocol=protocol)
        self.judging = Judging(
            submission, protocol, session.zygote, device="cpu", threads=1, environ={}, stages=Stages(), spares=None
        )
        self.reference = Reference(TASK.for_device("cpu"), "cpu", 0, protocol)
        self.reference.construct()
        self.reference.probe(1)
        self.asked: list[int] = []

    def owed(self, command_bytes: int, seed: int = 0) -> Owed:
        return Owed(self.judging, self.reference, command_bytes, random.Random(seed))

    def answer(self, number: int, *, right: bool = True) -> Answer:
        case = self.reference.case(number)
        value = case.inputs[0] * 2 if right else case.inputs[0] * 3

        def given() -> Case:
            self.asked.append(number)
            return case

        return Answer({"tree": self.reference.out_tree}, value.reshape(-1).view(torch.uint8).clone(), given)


@pytest.fixture
def evaluation(session: Session) -> Iterator[Evaluation]:
    made = Evaluation(session)
    yield made
    made.judging.close()


def test_what_there_is_room_for_is_compared_at_the_end_and_once(evaluation):
    owed = evaluation.owed(1)
    for number in range(5):
        owed.offer(lambda number=number: [evaluation.answer(number)])
        owed.between()
    assert evaluation.asked == []
    owed.settle(LONG_S)
    assert sorted(evaluation.asked) == [0, 1, 2, 3, 4]
    owed.settle(LONG_S)
    assert len(evaluation.asked) == 5


def test_what_there_is_no_room_for_is_compared_at_once(evaluation):
    owed = evaluation.owed(LARGE)
    for number in range(20):
        owed.offer(lambda number=number: [evaluation.answer(number)])
        owed.between()
    seen = list(evaluation.asked)
    assert len(seen) >= 3
    assert seen == sorted(seen)
    owed.settle(LONG_S)
    assert evaluation.asked == seen


@pytest.mark.parametrize("place", range(4))
def test_a_wrong_one_is_told_wherever_it_lies(evaluation, place):
    owed = evaluation.owed(1)
    for number in range(4):
        owed.offer(lambda number=number: [evaluation.answer(number, right=number != place)])
    with pytest.raises(Outcome, match="In a timed call") as told:
        owed.settle(LONG_S)
    assert told.value.status is Status.WRONG
    assert [finding.id for finding in told.value.findings()] == ["D8"]


def test_a_wrong_one_that_there_is_no_room_for_is_told_between_blocks(evaluation):
    owed = evaluation.owed(LARGE)
    taken = []
    for number in range(50):  # of which 0.7 each are looked at, as long as there is room
        owed.offer(lambda number=number: taken.append(number) or [evaluation.answer(1, right=False)])
    assert len(taken) == 4
    with pytest.raises(Outcome, match="In a timed call"):
        owed.between()


def test_a_few_are_compared_however_short_the_measurement_was_and_all_that_were_insisted_on(evaluation):
    owed = evaluation.owed(1)
    for number in range(20):
        owed.offer(lambda number=number: [evaluation.answer(number)])
    for number in range(100, 105):
        owed.insist(evaluation.answer(number))
    owed.settle(0.0)
    assert len(evaluation.asked) == 8
    assert len(set(evaluation.asked[:3]) & set(range(20))) == 3  # those of timed calls do not give way to the others
    assert sorted(evaluation.asked[3:]) == list(range(100, 105))
    owed.settle(0.0)  # all that were insisted on are done with
    assert sorted(evaluation.asked[8:]) == []


def test_what_is_insisted_on_is_compared(evaluation):
    owed = evaluation.owed(1)
    owed.insist(evaluation.answer(1, right=False))
    with pytest.raises(Outcome, match="In a timed call"):
        owed.settle(0.0)


@pytest.mark.parametrize(("command_bytes", "room"), [(_HELD_BYTES // 5, 5), (1, _MOST)])
def test_which_are_kept_does_not_depend_on_when_they_came(evaluation, command_bytes, room):
    commands, draws, left = 3 * room, 400, Counter()
    for seed in range(draws):
        owed = evaluation.owed(command_bytes, seed)
        for number in range(commands):
            owed.offer(lambda number=number: [number])
        assert len(owed._held) == room
        left.update(number for answers in owed._held for number in answers)
    expected = room / commands
    assert all(
        abs(left[number] / draws - expected) < 5 * (expected * (1 - expected) / draws) ** 0.5
        for number in range(commands)
    )
