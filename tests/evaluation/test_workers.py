"""The fork server and its workers where the machine refuses: it goes on, and no submission is blamed."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import math
import os
import resource
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelgym_env.evaluation import processes, workers, zygote
from kernelgym_env.evaluation.judging import Outcome
from kernelgym_env.evaluation.reference import flat
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.sandbox.identity import claim_uid
from kernelgym_env.evaluation.sandbox.plan import Plan
from kernelgym_env.evaluation.sandbox.warden import Cell
from kernelgym_env.evaluation.workers import Worker, WorkerEnded, WorkerLost, Zygote, ZygoteError


@pytest.fixture(scope="module")
def server() -> Iterator[Zygote]:
    made = Zygote("cpu", {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""})
    assert works(made)
    yield made
    made.close()


def works(server: Zygote) -> bool:
    """Whether a worker of it answers."""
    worker = server.fork({})
    try:
        return "error" in worker.ask({"op": "no such command"}, 60) and bool(worker.isolation)
    finally:
        worker.close()


@pytest.mark.parametrize("room", range(6))
def test_a_fork_server_without_descriptors_goes_on(server: Zygote, room: int) -> None:
    pid = server.process.pid
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    limit = [number for number in range(len(used) + room + 1) if number not in used][room]
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
    try:
        # what lacks is the room for the job's descriptors, or for those of its supervisor; the most may be enough
        with contextlib.suppress(ZygoteError) if room > 3 else pytest.raises(ZygoteError):
            works(server)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert works(server)
    assert server.process.pid == pid and server.process.poll() is None
    assert {int(name) for name in os.listdir(f"/proc/{pid}/fd")} == used


def test_a_fork_is_tried_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def fork() -> int:
        tries.append(1)
        if len(tries) < 4:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return 17

    monkeypatch.setattr(os, "fork", fork)
    assert zygote._fork_patiently() == 17
    monkeypatch.setattr(zygote, "_FORK_S", 0.05)
    monkeypatch.setattr(os, "fork", lambda: (_ for _ in ()).throw(OSError(errno.ENOMEM, "no memory")))
    with pytest.raises(OSError, match="no memory"):
        zygote._fork_patiently()
    processes.kill_user(61_184)  # and this does nothing


def test_a_worker_that_ends_before_it_has_read_a_submission_is_nobodys_crash(server: Zygote) -> None:
    broken: dict[str, Any] = {"NAME": 5}  # no environment takes a number
    worker = server.fork(broken)
    with pytest.raises(WorkerLost, match="on its way into the sandbox"):
        worker.ask({"op": "no such command"}, 20)
    worker.close(keep_folder=True)
    # where a submission has been at work before, it may have a hand in it
    again = server.fork(broken, folder=worker.folder)
    with pytest.raises(WorkerEnded, match="code 70"):
        again.ask({"op": "no such command"}, 20)
    again.close()


def test_a_worker_that_does_not_get_into_its_sandbox_is_nobodys_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_START_S", 0.2)
    monkeypatch.setattr(workers, "_PATIENCE_S", 0.2)
    control, other = socket.socketpair()
    output, output_write = os.pipe()
    status, status_write = os.pipe()
    with subprocess.Popen(["sleep", "30"]) as process:
        cell = Cell(Plan(kind="cpu", folder=str(tmp_path), mount_point=str(tmp_path)))
        worker = Worker(process.pid, control, output, status, tmp_path, cell)
        with pytest.raises(WorkerLost, match="in time"):
            worker.ask({"op": "load"}, 0.1)
    for fd in (output_write, status_write):
        os.close(fd)
    other.close()


def test_a_worker_that_ended_between_two_commands_is_a_crash(server: Zygote) -> None:
    worker = server.fork({})
    worker.ask({"op": "no such command"}, 60)
    os.kill(processes.descendants(worker.pid)[-1], 9)
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{worker.pid}") and time.monotonic() < end:
        time.sleep(0.01)
    with pytest.raises(WorkerEnded, match="ended by SIGKILL"):
        worker.ask({"op": "no such command"}, 60)
    worker.close()


def test_what_launching_takes_is_told_once_and_the_answer_may_come_with_it(server: Zygote) -> None:
    worker = server.fork({})
    source = """
import json, struct, sys

frame = sys._getframe()
while "command" not in frame.f_locals:
    frame = frame.f_back
harness, nonce = frame.f_locals["self"], frame.f_locals["command"]["nonce"]
sent = b""
for told in [3.5, {"more": 1}, 9.0]:
    body = json.dumps({"launch_us": told, "nonce": nonce}).encode()
    sent += struct.pack("<I", len(body)) + body
harness.sock.sendall(sent)
"""
    path = worker.folder / "submission.py"
    path.write_text(source)
    path.chmod(0o644)
    command = {"op": "load", "path": str(path), "entry": "json", "construct": False, "init": None, "seed": 0}
    try:
        assert math.isnan(worker.launch_us)
        answer = worker.ask({**command, "device": "cpu", "threads": 0, "tf32": [False, False], "builds": False}, 60)
        assert worker.launch_us == 3.5
        assert answer["launch_us"] == {"more": 1}  # what is no such figure, or a second one, is taken for the answer
    finally:
        worker.close()


def test_bytes_that_trickle_in_neither_move_the_deadline_nor_keep_the_judge_from_giving_way(server: Zygote) -> None:
    worker, asked = server.fork({}), []
    source = """
import struct, sys, time

frame = sys._getframe()
while "command" not in frame.f_locals:
    frame = frame.f_back
sock = frame.f_locals["self"].sock
sock.sendall(struct.pack("<I", 100_000))
while True:
    sock.sendall(b" ")
    time.sleep(0.001)
"""
    path = worker.folder / "submission.py"
    path.write_text(source)
    path.chmod(0o644)
    command = {"op": "load", "path": str(path), "entry": "json", "construct": False, "init": None, "seed": 0}
    command |= {"device": "cpu", "threads": 0, "tf32": [False, False], "builds": False}
    try:
        with pytest.raises(WorkerEnded, match="no answer within 1 s"):
            worker.ask(command, 1.0, meanwhile=lambda: asked.append(time.monotonic()) or 0.0)
        assert len(asked) > 20
        assert max(later - earlier for earlier, later in itertools.pairwise(asked)) < 0.2
    finally:
        worker.close()


def test_nothing_is_signalled_once_a_supervisor_has_ended(server: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = server.fork({})
    os.kill(worker.pid, 15)
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{worker.pid}") and time.monotonic() < end:
        time.sleep(0.01)
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signalled.append(pid))
    worker.stop()
    worker.close()
    assert signalled == []


def test_the_end_of_a_fork_server_is_told_with_its_cause() -> None:
    server = Zygote("cpu", {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""})
    try:
        server.process.kill()
        with pytest.raises(ZygoteError, match="ended by SIGKILL"):
            server.wait_ready()
    finally:
        server.close()


def test_a_user_id_is_claimed_by_one_judge_at_a_time() -> None:
    first, claim = claim_uid(0)
    second, other = claim_uid(0)
    assert second != first
    claim.close()
    again, third = claim_uid(0)
    assert again == first
    for held in (other, third):
        held.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user id")
def test_a_user_id_that_hides_itself_is_in_use() -> None:
    free, claim = claim_uid(0)
    claim.close()
    # after the change its folder in /proc belongs to root
    code = "import os, sys, time; os.setresuid(*3 * [int(sys.argv[1])]); print(flush=True); time.sleep(30)"
    with subprocess.Popen([sys.executable, "-c", code, str(free)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        uid, claim = claim_uid(0)
        claim.close()
        other.kill()
    assert uid != free


def test_tensors_go_as_soon_as_nobody_needs_them() -> None:
    tensor = torch.zeros(3)
    gone = weakref.ref(tensor)
    gc.disable()
    try:
        assert len(flat([{"a": tensor}, 1])) == 2
        del tensor
        assert gone() is None
    finally:
        gc.enable()


def test_a_finding_holds_no_values_and_no_control_characters() -> None:
    outcome = Outcome(Status.POLICY, "The call fails: KeyError: 0.3912874 \x1b[31mred\x1b[0m\x07 \ud800", finding="A3")
    (finding,) = outcome.findings()
    assert finding.message == "The call fails: KeyError: 0.3… red\\x07 \\ud800"
