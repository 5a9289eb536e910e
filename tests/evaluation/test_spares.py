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
from kernelgym_env.evaluation.spares import Spares, stock
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


def test_settling_leaves_them_ready(server: Zygote) -> None:
    spares = Spares(server, "cpu", {}, 2)
    spares.fill()
    spares.settle()
    assert all(worker.isolation for worker in spares._workers)
    taken = spares.take()
    assert answers(taken)
    taken.close()
    spares.close()


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
        assert jobs(session.zygote) <= 2  # the stock for the next one
    finally:
        folder: Path = session.zygote.folder
        session.close()
    assert not folder.exists()
