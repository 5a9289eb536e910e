"""Taking turns on a device: locks and leases, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kernelgym_env
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation import locks
from kernelgym_env.evaluation.locks import Turn, device_lock, machine_name
from kernelgym_env.nvml import Gpu

ROOT = Path(__file__).resolve().parent.parent.parent
Start = Callable[..., "subprocess.Popen[str]"]

LOG = """
import os, sys, time
from kernelgym_env import device_lease
from kernelgym_env.evaluation.locks import device_lock
FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(what):
    os.write(FILE, f"{time.monotonic()} {os.getpid()} {what}\\n".encode())
"""
EVALUATION = (
    LOG
    + """
for _ in range(int(sys.argv[2])):
    note("wait")
    with device_lock("cpu", timeout_s=60):
        note("take")
        time.sleep(0.01)
        note("give")
"""
)
# A trainer that never pauses between two steps.
TRAINER = (
    LOG
    + """
while True:
    with device_lease("cpu"):
        note("take")
        time.sleep(0.02)
        note("give")
"""
)
SERVER = (
    LOG
    + """
with device_lease("cpu", pause=lambda: note("pause"), resume=lambda: note("resume")) as lease:
    note("take")
    while lease.lent < 2:
        time.sleep(0.01)
    note("give")
"""
)
HOLDER = LOG + 'with device_lock("cpu"):\n    note("take")\n    time.sleep(60)\n'
FORKED = (
    LOG
    + """
with device_lock("cpu"):
    if os.fork() == 0:
        note("child")
        time.sleep(60)
    note("take")
    time.sleep(60)
"""
)


class Log:
    """What the processes noted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[tuple[float, int, str]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(float(when), int(pid), what) for when, pid, what in (line.split() for line in lines)]

    def wait_for(self, what: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while all(entry[2] != what for entry in self.entries()):
            assert time.monotonic() < deadline, f"nobody noted {what!r}"
            time.sleep(0.01)

    def holders(self) -> list[int]:
        """Who held the device, in order; two at a time fail the test."""
        holder, order = 0, []
        for _, pid, what in self.entries():
            if what == "take":
                assert not holder, f"{pid} took what {holder} had"
                holder = pid
                order.append(pid)
            elif what == "give":
                assert holder == pid
                holder = 0
        return order


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setenv("KERNELGYM_RUNTIME_DIR", str(tmp_path / "runtime"))
    return Log(tmp_path / "log")


@pytest.fixture
def start(log: Log) -> Iterator[Start]:
    """Starts a program with the log; what still runs at the end is killed."""
    running = []

    def run(code: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(log.path), *arguments],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
    for _, pid, what in log.entries():
        if what == "child":
            os.kill(pid, signal.SIGKILL)
    for process in running:
        process.communicate()


def ended(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


# --- the lock


def test_one_at_a_time(start: Start, log: Log) -> None:
    processes = [start(EVALUATION, "20") for _ in range(3)]
    for process in processes:
        ended(process)
    holders = log.holders()
    assert {pid: holders.count(pid) for pid in holders} == {process.pid: 20 for process in processes}


def test_threads_take_turns_too(log: Log) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(10):
            with device_lock("cpu"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.002)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_devices_do_not_wait_for_each_other(log: Log) -> None:
    with device_lock("cpu"), device_lock("something else", timeout_s=1), device_lock("cuda:0", timeout_s=1):
        pass


def test_who_waits_too_long_is_told_by_whom(start: Start, log: Log) -> None:
    holder = start(HOLDER)
    log.wait_for("take")
    with (
        pytest.raises(
            TimeoutError,
            match=rf"Device cpu was not free for 0.05 s; the last to take it was process {holder.pid} \(timing\)",
        ),
        device_lock("cpu", timeout_s=0.05),
    ):
        pytest.fail("it was not free")
    # the attempt left nothing behind that would keep others out
    holder.kill()
    with device_lock("cpu", timeout_s=5):
        pass


@pytest.mark.parametrize("code", [HOLDER, FORKED])
def test_a_holder_that_dies_gives_the_device_back(start: Start, log: Log, code: str) -> None:
    holder = start(code)
    log.wait_for("take")
    if code == FORKED:
        log.wait_for("child")
    holder.kill()  # a forked child lives on
    with device_lock("cpu", timeout_s=5):
        pass


def test_a_block_that_raises_gives_the_device_back(log: Log) -> None:
    with pytest.raises(ZeroDivisionError), device_lock("cpu"):
        _ = 1 / 0
    with pytest.raises(ZeroDivisionError), kernelgym_env.device_lease("cpu"):
        _ = 1 / 0
    with device_lock("cpu", timeout_s=0.1):
        pass


def test_giving_back_twice_is_no_error(log: Log) -> None:
    turn = Turn("cpu")
    turn.give()
    turn.take()
    assert not turn.wanted()
    turn.give()
    turn.give()


# --- fairness


def test_evaluations_do_not_starve_beside_a_trainer_that_never_pauses(start: Start, log: Log) -> None:
    start(TRAINER)
    log.wait_for("give")
    evaluations = [start(EVALUATION, "10") for _ in range(2)]
    for process in evaluations:
        ended(process)
    time.sleep(0.1)
    holders = log.holders()
    assert holders.count(evaluations[0].pid) == holders.count(evaluations[1].pid) == 10
    entries = log.entries()
    for process in evaluations:
        mine = [(when, what) for when, pid, what in entries if pid == process.pid]
        waits = [(a, b) for (a, one), (b, two) in zip(mine, mine[1:], strict=False) if (one, two) == ("wait", "take")]
        for began, got in waits:
            meanwhile = [pid for when, pid, what in entries if what == "take" and began < when < got]
            # the one who holds the device, and whoever gets the gate first: not the trainer time and again
            assert len(meanwhile) < 20
    # nor does the trainer
    last = max(place for place, pid in enumerate(holders) if pid == evaluations[0].pid)
    assert any(pid not in {process.pid for process in evaluations} for pid in holders[last:])


# --- leases


def test_a_server_is_paused_while_others_have_the_device(start: Start, log: Log) -> None:
    server = start(SERVER)
    log.wait_for("take")
    for _ in range(2):
        ended(start(EVALUATION, "1"))
    ended(server)
    seen = [(pid == server.pid, what) for _, pid, what in log.entries() if what != "wait"]
    once = [(True, "pause"), (False, "take"), (False, "give"), (True, "resume")]
    assert seen == [(True, "take"), *once, *once, (True, "give")]


def test_a_trainer_gives_way_between_two_steps(start: Start, log: Log) -> None:
    with kernelgym_env.device_lease("cpu") as lease:
        assert not lease.wanted
        assert lease.give_way() == 0
        evaluation = start(EVALUATION, "1")
        deadline = time.monotonic() + 30
        while not lease.wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        assert log.holders() == []
        assert lease.give_way() >= 0.01
        assert log.holders() == [evaluation.pid]
        assert (lease.lent, lease.wanted) == (1, False)
        assert lease.lent_s > 0
    ended(evaluation)


def test_a_hook_that_fails_is_not_lost(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("the engine does not answer")

    with (
        pytest.raises(RuntimeError, match="does not answer"),
        kernelgym_env.device_lease("cpu", pause=fail, resume=fail),
        pytest.raises(TimeoutError, match=r"\(lease\)"),
        device_lock("cpu", timeout_s=0.3),
    ):
        pytest.fail("it was not idle")
    assert "is not handed over any more" in caplog.text
    with device_lock("cpu", timeout_s=0.1):
        pass


def test_a_lease_that_ends_while_it_is_lent_waits_until_the_device_is_back(log: Log) -> None:
    seen = []
    taken, ends = threading.Event(), threading.Event()

    def other() -> None:
        with device_lock("cpu"):
            taken.set()
            ends.wait(30)
            seen.append("other")

    thread = threading.Thread(target=other)
    with kernelgym_env.device_lease("cpu", pause=lambda: seen.append("pause"), resume=lambda: seen.append("resume")):
        thread.start()
        assert taken.wait(30)
        threading.Timer(0.05, ends.set).start()
    assert seen == ["pause", "other", "resume"]
    thread.join()


def test_give_way_is_for_leases_without_hooks(log: Log) -> None:
    with (
        kernelgym_env.device_lease("cpu", pause=lambda: None, resume=lambda: None) as lease,
        pytest.raises(RuntimeError, match="gives way by its hooks"),
    ):
        lease.give_way()


@pytest.mark.parametrize("device", ["cuda", "auto", "cuda:", "tpu:0", 0])
def test_a_lease_is_of_one_device(device: object) -> None:
    with (
        pytest.raises(InvalidOptionError, match=f"needs one device, 'cpu' or 'cuda:<index>', got {device!r}"),
        kernelgym_env.device_lease(device),  # type: ignore[arg-type]
    ):
        pass


def test_hooks_come_in_pairs() -> None:
    with pytest.raises(InvalidOptionError, match="both hooks"), kernelgym_env.device_lease("cpu", pause=print):
        pass


# --- the name of a device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with two GPUs."""
    found = [
        Gpu(index, "NVIDIA H200", uuid, 140.0, 139.0, "default", False, True)
        for index, uuid in ((0, "GPU-a1"), (1, "GPU-b2"))
    ]
    monkeypatch.setattr(locks.nvml, "query", lambda: ("580.1", found))
    locks._uuids.cache_clear()
    yield
    locks._uuids.cache_clear()


@pytest.mark.parametrize(
    ("device", "visible", "name"),
    [
        ("cuda:1", None, "GPU-b2"),
        ("cuda:0", "1", "GPU-b2"),
        ("cuda:1", "1,0", "GPU-a1"),
        ("cuda:0", "GPU-b", "GPU-b2"),
        ("cuda:0", "GPU-", "GPU-"),
        ("cuda:0", "MIG-7", "MIG-7"),
        ("cuda:7", None, "cuda:7"),
        ("cuda:3", "3", "cuda:3"),
        ("cuda:0", "", "cuda:0"),
        ("cuda", None, "cuda"),
        ("cpu", "1", "cpu"),
        ("redteam", None, "redteam"),
    ],
)
def test_names(gpus: None, monkeypatch: pytest.MonkeyPatch, device: str, visible: str | None, name: str) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine_name(device) == name


def test_names_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise OSError("no NVIDIA driver")

    monkeypatch.setattr(locks.nvml, "query", missing)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7")
    locks._uuids.cache_clear()
    try:
        assert [machine_name(device) for device in ("cuda:0", "cuda:1")] == ["cuda:3", "GPU-7"]
    finally:
        locks._uuids.cache_clear()
