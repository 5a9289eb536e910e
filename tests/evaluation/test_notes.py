"""What is found out about a task once, by one judge, and then known to all."""

from __future__ import annotations

import dataclasses
import json
import random
import time
from pathlib import Path

import programs
import pytest
import torch
from programs import QUICK, RIGHT, TASK, task

from kernelgym_env.evaluation import lawbook
from kernelgym_env.evaluation.contents import Contents
from kernelgym_env.evaluation.keyed_files import KeyedFiles
from kernelgym_env.evaluation.lawbook import LawBook
from kernelgym_env.evaluation.notes import Notes, Probed, TaskNotes
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.reference import Reference
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.roofline import Work
from kernelgym_env.evaluation.session import Session
from kernelgym_env.evaluation.submission import Submission

HARDWARE, VERSIONS = {"name": "a CPU", "threads": "1"}, {"torch": "2"}
STRICT = get_protocol("strict")
WAVE = task("        return {'a': torch.sin(args[0] * 3e3), 0: [args[0] > 0, 3]}", "[torch.randn(64, 32)]")


def learned() -> TaskNotes:
    """Notes with everything in them, of a task that bears some laws and not others."""
    reference = Reference(WAVE.for_device("cpu"), "cpu", 1, STRICT)
    reference.construct()
    reference.probe(2)
    book, case = LawBook(WAVE), reference.case(3)
    book.learn(reference, case)
    for number, name in enumerate(book.names):
        book.admit(reference, name, 100 * number)
    assert book.dropped
    assert book.levels
    probed = Probed(reference.out_tree, reference.out_size, reference.mutates, Work(2e9, 1e6))
    return TaskNotes(book, probed, "rows")


def save(notes: Notes, found: TaskNotes, protocol=STRICT) -> None:
    notes.of(WAVE, protocol).add(found.to_dict())
    notes.keep()


def test_another_judge_finds_what_was_written_down(tmp_path):
    found = learned()
    save(Notes(HARDWARE, VERSIONS, tmp_path), found)
    known = Notes(HARDWARE, VERSIONS, tmp_path).of(WAVE, STRICT)
    assert known.to_dict() == found.to_dict()
    assert known.probed == found.probed
    reference = Reference(WAVE.for_device("cpu"), "cpu", 1, STRICT)
    reference.construct()
    known.probed.tell(reference)
    case = reference.case(5)
    reference.expect(case)  # which raises where the output has another structure than it was told
    known.book.learn(reference, case)  # nothing, as it is known
    name = next(iter(known.book.levels))
    varied = known.book.case(reference, name, 7, case)
    assert varied is not None and known.book.holds(reference, varied)


@pytest.mark.parametrize(
    "other",
    [
        {"hardware": {**HARDWARE, "threads": "2"}},
        {"versions": {"torch": "3"}},
        {"task": dataclasses.replace(WAVE, source=WAVE.source + "\n")},
        {"task": dataclasses.replace(WAVE, input_laws=("shifted",))},
        {"protocol": STRICT.replace(train_mode=True)},
        {
            "protocol": STRICT.replace(rtol_scale=2.0)
            if hasattr(STRICT, "rtol_scale")
            else STRICT.replace(min_blocks=11)
        },
    ],
)
def test_they_are_of_a_task_a_device_versions_and_constants(tmp_path, other):
    save(Notes(HARDWARE, VERSIONS, tmp_path), learned())
    notes = Notes(other.get("hardware", HARDWARE), other.get("versions", VERSIONS), tmp_path)
    known = notes.of(other.get("task", WAVE), other.get("protocol", STRICT))
    assert known.probed is None
    assert known.book.levels == {}


def test_names_and_deadlines_of_a_protocol_are_none_of_its_constants(tmp_path):
    save(Notes(HARDWARE, VERSIONS, tmp_path), learned())
    longer = STRICT.replace(deadlines=dataclasses.replace(STRICT.deadlines, run_s=77.0))
    assert longer.name != STRICT.name
    assert Notes(HARDWARE, VERSIONS, tmp_path).of(WAVE, longer).mixing == "rows"


def test_two_judges_add_to_each_others_findings(tmp_path):
    found = learned()
    one, two = (Notes(HARDWARE, VERSIONS, tmp_path) for _ in range(2))
    mine, theirs = one.of(WAVE, STRICT), two.of(WAVE, STRICT)
    mine.probed = found.probed
    theirs.mixing = "whole"
    theirs.book.add({**found.to_dict()["laws"], "levels": {"shifted": 0}, "dropped": {}})
    one.keep()
    two.keep()
    known = Notes(HARDWARE, VERSIONS, tmp_path).of(WAVE, STRICT)
    assert (known.probed, known.mixing, known.book.levels) == (found.probed, "whole", {"shifted": 0})
    assert theirs.probed == found.probed  # it has learned so too


def test_what_a_judge_found_itself_stays(tmp_path):
    one, two = (Notes(HARDWARE, VERSIONS, tmp_path) for _ in range(2))
    mine, theirs = one.of(WAVE, STRICT), two.of(WAVE, STRICT)
    mine.mixing, theirs.mixing = "rows", "whole"
    usual = learned().to_dict()["laws"]["usual"]
    mine.book.add({"usual": usual, "levels": {"shifted": 1}, "dropped": {}})
    theirs.book.add({"usual": usual, "levels": {}, "dropped": {"shifted": "it fails"}})
    one.keep()
    two.keep()
    assert theirs.mixing == "whole"
    assert (theirs.book.levels, theirs.book.dropped) == ({}, {"shifted": "it fails"})
    assert Notes(HARDWARE, VERSIONS, tmp_path).of(WAVE, STRICT).book.dropped == {"shifted": "it fails"}


def test_nothing_is_written_where_nothing_is_new(tmp_path):
    notes = Notes(HARDWARE, VERSIONS, tmp_path)
    notes.of(WAVE, STRICT)
    notes.keep()
    assert list(tmp_path.iterdir()) == []
    save(notes, learned())
    (file,) = tmp_path.rglob("*.json")
    file.unlink()
    notes.of(WAVE, STRICT)
    notes.keep()
    assert list(tmp_path.rglob("*.json")) == []


def test_after_a_week_all_is_found_out_again_also_by_a_judge_that_runs(tmp_path, monkeypatch):
    runs = Notes(HARDWARE, VERSIONS, tmp_path)
    save(runs, learned())
    now = time.time()
    for days, there in ((6.9, True), (7.1, False)):
        monkeypatch.setattr(time, "time", lambda days=days: now + days * 24 * 3600)
        assert (Notes(HARDWARE, VERSIONS, tmp_path).of(WAVE, STRICT).probed is not None) is there
        assert (runs.of(WAVE, STRICT).probed is not None) is there
        runs.of(WAVE, STRICT).book.levels["shifted"] = 2  # what is added makes nothing younger
        runs.keep()


def test_what_an_evaluation_found_that_was_broken_off_is_forgotten(tmp_path):
    notes, found = Notes(HARDWARE, VERSIONS, tmp_path), learned()
    notes.of(WAVE, STRICT).mixing = "rows"
    notes.keep()
    notes.of(WAVE, STRICT).probed = found.probed
    notes.forget()
    assert notes.of(WAVE, STRICT).probed is None
    assert notes.of(WAVE, STRICT).mixing == "rows"
    notes.keep()
    assert Notes(HARDWARE, VERSIONS, tmp_path).of(WAVE, STRICT).probed is None


def test_laws_that_were_found_on_a_busy_machine_are_not_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(lawbook, "_SLOW_S", 0.0)  # so that there is no time to ask how the oracle swings
    busy = learned()
    assert busy.to_dict()["laws"] == {"dropped": {}, "levels": {}, "usual": None}
    save(Notes(HARDWARE, VERSIONS, tmp_path), busy)
    known = Notes(HARDWARE, VERSIONS, tmp_path).of(WAVE, STRICT)
    assert known.probed == busy.probed
    assert known.book.levels == {}
    monkeypatch.setattr(lawbook, "_LARGE_BYTES", 0)  # of a large task it is never asked
    assert learned().to_dict()["laws"]["levels"]


def test_a_book_whose_look_was_broken_off_knows_nothing(monkeypatch):
    reference = Reference(WAVE.for_device("cpu"), "cpu", 1, STRICT)
    reference.construct()
    reference.probe(2)
    book, case = LawBook(WAVE), reference.case(3)
    monkeypatch.setattr(reference, "device", torch.device("cuda"))  # where it is looked at for integers, too
    reference.expect(case)
    monkeypatch.setattr(reference, "run", lambda inputs: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        book.learn(reference, case)
    assert book.to_dict()["usual"] is None
    monkeypatch.undo()
    book.learn(reference, case)
    assert book.to_dict()["usual"] is not None


ODD = {
    "another mixing": lambda data: data.update(mixing="stirred"),
    "no laws": lambda data: data.pop("laws"),
    "other health": lambda data: data["laws"].update(usual={"colour": "red"}),
    "negative work": lambda data: data["probed"]["work"].update(flops=-1.0),
    "a list": lambda data: data.update(probed=[1, 2]),
}


@pytest.mark.parametrize("how", ODD)
def test_notes_of_another_form_are_as_good_as_none(tmp_path, how):
    save(Notes(HARDWARE, VERSIONS, tmp_path), learned())
    (file,) = tmp_path.rglob("*.json")
    document = json.loads(file.read_text())
    ODD[how](document["data"])
    KeyedFiles(tmp_path).save(document["key"], document["data"])
    notes = Notes(HARDWARE, VERSIONS, tmp_path)
    known = notes.of(WAVE, STRICT)
    assert known.probed is None or known.mixing is None
    save(notes, learned())
    assert known.probed is not None


def test_a_folder_that_cannot_be_written_hinders_nobody(tmp_path):
    (tmp_path / "notes").write_text("")
    save(Notes(HARDWARE, VERSIONS, tmp_path / "notes"), learned())


def test_the_next_judge_looks_at_a_known_reference_no_more(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path))
    # calls in the judge's own process, which is this one, are counted; elsewhere the module has another name
    count = "if __name__.startswith('kernelgym_reference'): sys.modules['programs'].LOOKS.append(1)"
    source = TASK.source.replace("forward(self, x):", f"forward(self, x):\n        {count}")
    monkeypatch.setattr(programs, "LOOKS", [], raising=False)
    counted = dataclasses.replace(TASK, source=f"import sys\n{source}")
    found = []
    for number in range(2):
        programs.LOOKS.clear()
        session = Session("cpu", "cpu", 1)
        try:
            session.prepare()
            evaluation = session.evaluate(Submission(counted, RIGHT, device="cpu", protocol=QUICK), b"notes", number)
        finally:
            session.close()
        assert evaluation.status is Status.CORRECT, evaluation.feedback
        found.append(len(programs.LOOKS))
    assert found[1] < found[0] - 3  # of the probe alone
    assert len(list((tmp_path / "notes").rglob("*.json"))) == 1


def test_a_task_that_cannot_be_judged_is_not_noted(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path))
    drawn = task("        return torch.randn(8)", "[torch.randn(8, 8)]")
    session = Session("cpu", "cpu", 1)
    try:
        session.prepare()
        for number in range(2):
            evaluation = session.evaluate(Submission(drawn, RIGHT, device="cpu", protocol=QUICK), b"notes", number)
            assert evaluation.status is Status.TASK_INVALID
    finally:
        session.close()
    assert not list(Path(tmp_path).rglob("notes/*/*.json"))


@pytest.mark.parametrize("cols", [1, 32])
def test_what_is_mixed_is_the_same_whether_it_was_known_or_not(cols):
    reference = Reference(task("        return args[0] * 2", f"[torch.randn(64, {cols})]"), "cpu", 1, STRICT)
    reference.construct()
    reference.probe(2)
    found, told = (Contents([reference.case(3), reference.case(4)], random.Random(7)) for _ in range(2))
    told.limit(found.settle(reference))
    made = [[one.near().inputs[0] for _ in range(3)] + [one.mixed().inputs[0]] for one in (found, told)]
    assert all(torch.equal(one, two) for one, two in zip(*made, strict=True))


def test_the_order_of_laws_is_the_same_whether_dropped_ones_are_known_or_not():
    book = LawBook(WAVE)
    order = book.order(5)
    book.dropped = {order[2]: "it fails"}
    assert book.order(5) == order[:2] + order[3:]
