"""Workers made ahead of time, with a real fork server; on a CPU, where a judge keeps none unless it is told to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import QUICK, RIGHT, TASK

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.session import Session
from kernelgym_env.evaluation.spares import Spares, kept, stock
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.evaluation.workers import Worker, WorkerEnded, Zygote

SECRET = b"spares"


@pytest.fixture(scope="module")
def server() -> Iterator[Zygote]:
    made = Zygote("cpu", {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""})
    yield made
    made.close()


def jobs(server: Zygote) -> int:
    return len(list(server.folder.glob("job-*")))


def answers(worker: Worker) -> bool:
    return "error" in worker.ask({"op": "no such command"}, 60) and bool(worker.isolation)


def held(worker: Worker) -> bool:
    states = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in processes.below(worker.pid)
    ]
    return "T" in states


def test_they_are_made_ahead_handed_out_once_and_replaced(server: Zygote) -> None:
    spares = Spares(server, "cpu", {}, 2)
    spares.fill()
    spares.fill()
    assert jobs(server) == 2
    taken = [spares.take() for _ in range(3)]  # the last one is made now
    assert jobs(server) == 3
    assert len({worker.pid for worker in taken}) == 3
    assert all(answers(worker) for worker in taken)
    spares.fill()
    assert jobs(server) == 5
    spares.close()
    assert jobs(server) == 3
    for worker in taken:
        worker.close()
    assert jobs(server) == 0


def test_what_was_answered_early_is_kept(server: Zygote) -> None:
    worker = server.fork({})
    worker.settle(60)  # nothing was asked
    worker.post({"op": "warm", "device": "cpu"})
    worker.settle(60)
    worker.settle(60)
    assert worker.wait(0)["ok"] is True
    worker.settle(60)
    assert answers(worker)
    processes.Halt(worker.pid).hold()
    worker.post({"op": "batch", "calls": 1, "wait": 0})
    os.kill(worker.pid, signal.SIGKILL)
    worker.settle(60)
    with pytest.raises(WorkerEnded):  # what became of it is told to who waits
        worker.wait(60)
    worker.settle(60)  # nothing is due
    worker.close()


def test_those_that_rest_go_on_later(server: Zygote) -> None:
    spares = Spares(server, "cpu", {}, 2)
    spares.fill()
    spares.rest()
    spares.rest()
    time.sleep(0.5)
    assert all(held(worker) for worker in spares._workers)
    assert answers(first := spares.take())
    first.close()
    spares.rest()
    spares.fill()
    taken = spares.take()
    assert answers(taken)
    taken.close()
    spares.close()


def test_what_is_waited_for_can_be_held_still_meanwhile(server: Zygote) -> None:
    spares, seen = Spares(server, "cpu", {}, 2), []

    def meanwhile() -> float:
        if seen:
            return 0.0
        with spares.still():
            time.sleep(0.5)
            seen.extend(map(held, spares._workers))
        return 0.5

    spares.fill()
    first = spares._workers[0]
    assert first.wait(60)["ok"] is True
    processes.Halt(first.pid).hold()  # it takes its time with what it is asked next
    first.post({"op": "warm", "device": "cpu"})
    taken = spares.take(meanwhile)
    assert taken is first
    assert seen == [True, True]
    assert answers(taken)
    taken.close()
    spares.close()


def test_a_deadline_moves_by_what_the_waiting_is_interrupted_for(server: Zygote) -> None:
    worker, calls = server.fork({}), []

    def meanwhile() -> float:
        calls.append(time.monotonic())
        return 0.05 if len(calls) < 20 else 0.0

    assert answers(worker)
    halt = processes.Halt(worker.pid)
    halt.hold()
    start = time.monotonic()
    with pytest.raises(WorkerEnded, match=r"within 0\.2 s"):
        worker.ask({"op": "warm", "device": "cpu"}, 0.2, meanwhile=meanwhile)
    assert 1.0 < time.monotonic() - start < 5
    halt.release()
    worker.close()


TWICE = """
import torch
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
torch.backends.cudnn.benchmark = True


class Model(torch.nn.Module):
    def forward(self, x):
        return x * {factor}
"""


def test_a_reference_gets_the_process_of_the_one_before_empty(server: Zygote, tmp_path: Path) -> None:
    spares = Spares(server, "cpu", {}, 1)
    load = {"op": "load", "entry": "Model", "construct": True, "init": {"t": "list", "items": []}, "seed": 1}
    load |= {"device": "cpu", "threads": 0, "train_mode": None, "tf32": [False, False], "way": "", "builds": False}
    spares.fill()
    twin = spares.take_twin()
    for factor in (2, 3):
        path = twin.folder / f"reference_{factor}.py"
        path.write_text(TWICE.format(factor=factor))
        assert "error" not in twin.ask({**load, "path": str(path)}, 60)
        assert spares.give_back(twin)
        assert kept(server.folder)[-1] == twin.pid
        assert not path.exists()
        assert spares.take_twin() is twin
        assert twin.pid not in kept(server.folder)
        assert "NoneType" in str(twin.ask({"op": "batch", "calls": 1, "wait": 0}, 60)["error"])
    path.write_text(TWICE.format(factor=4))
    assert "error" not in twin.ask({**load, "path": str(path)}, 60)
    assert spares.give_back(twin)
    os.kill(twin.pid, signal.SIGKILL)
    time.sleep(0.2)
    other = spares.take_twin()  # it died meanwhile
    assert other is not twin
    assert not twin.folder.exists()
    path = other.folder / "reference.py"
    path.write_text("raise RuntimeError")
    assert "error" in other.ask({**load, "path": str(path)}, 60)
    assert not spares.give_back(other)  # it may be in any state
    os.kill(other.pid, signal.SIGKILL)
    time.sleep(0.2)
    assert not spares.give_back(other)
    other.close()
    spares.close()


def test_where_nothing_can_be_written_workers_are_made_and_ended_all_the_same(server: Zygote) -> None:
    places = [server.folder / "kept", server.folder / "ending"]
    for place in places:
        place.unlink(missing_ok=True)
        place.mkdir()  # so that no file can be written there
    spares = Spares(server, "cpu", {}, 1)
    try:
        spares.fill()
        twin = spares.take_twin()
        assert answers(twin)
        server.note_ending([twin])
        (twin.folder / "reference.py").mkdir()  # which cannot be unlinked
        assert not spares.give_back(twin)
        twin.close()
    finally:
        spares.close()
        for place in places:
            place.rmdir()
    assert jobs(server) == 0


def test_one_that_has_died_meanwhile_is_replaced(server: Zygote) -> None:
    spares = Spares(server, "cpu", {}, 2)
    spares.fill()
    dead = spares._workers[0]
    os.kill(dead.pid, signal.SIGKILL)
    time.sleep(0.2)
    taken = [spares.take(), spares.take()]
    assert dead.pid not in {worker.pid for worker in taken}
    assert all(answers(worker) for worker in taken)
    for worker in taken:
        worker.close()
    spares.close()
    assert jobs(server) == 0


def test_verdicts_are_those_of_workers_made_when_needed_and_nothing_is_left() -> None:
    assert stock("cpu") == 0
    session = Session("cpu", "cpu", 1)
    try:
        session.prepare()
        session.spares = Spares(session.zygote, "cpu", {}, 2)
        wrong = RIGHT.replace("0.5", "0.6")
        raising = RIGHT.replace("def forward", "def forward_").replace("super().__init__()", "raise ValueError('no')")
        found = [
            session.evaluate(Submission(TASK, source, device="cpu", protocol=QUICK), SECRET, number)
            for number, source in enumerate((RIGHT, wrong, RIGHT, raising, RIGHT))
        ]
        expected = [Status.CORRECT, Status.WRONG, Status.CORRECT, Status.RUNTIME_ERROR, Status.CORRECT]
        assert [one.status for one in found] == expected
        session._closing.result(timeout=30)
        # the stock for the next one, and the reference's process
        folders = {folder.name.split("-")[1] for folder in session.zygote.folder.glob("job-*")}
        assert len(folders) == len(kept(session.zygote.folder)) == 3
        assert session.spares._twin is not None
    finally:
        folder: Path = session.zygote.folder
        session.close()
    assert not folder.exists()
