"""A device's memory, divided among judges; with real processes, and no GPU."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelgym_env.evaluation.locks import Shares
from kernelgym_env.evaluation.room import Room, largest_bytes, needed_bytes
from kernelgym_env.tasks import Task

ROOT = Path(__file__).resolve().parents[2]
HOLDS = """
import os, sys, time
from kernelgym_env.evaluation.locks import Shares
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
shares = Shares("cpu", "a test", lock="test", number=8)
for count in map(int, sys.argv[2].split(",")):
    with shares.hold(count, 60):
        os.write(file, f"{time.monotonic()} {count}\\n".encode())
        time.sleep(0.03)
        os.write(file, f"{time.monotonic()} {-count}\\n".encode())
print("done", flush=True)
"""
KEEPS = """
import sys, time
from kernelgym_env.evaluation.locks import Shares
with Shares("cpu", "a test", lock="test", number=8).hold(int(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGYM_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


def keeper(count):
    process = subprocess.Popen([sys.executable, "-c", KEEPS, str(count)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return process


def test_no_more_is_held_than_there_is_and_all_get_their_turn(runtime):
    wishes = ["1,8,3,1,5", "3,3,3,8,1", "2,7,1,4,6", "5,5,1,1,1"]
    started = [subprocess.Popen([sys.executable, "-c", HOLDS, str(runtime / "log"), wish], cwd=ROOT) for wish in wishes]
    assert [process.wait(timeout=60) for process in started] == [0] * 4
    events = sorted(tuple(map(float, line.split())) for line in (runtime / "log").read_text().splitlines())
    assert len(events) == 2 * 4 * 5
    held, most = 0, 0
    for _, count in events:
        held += int(count)
        most = max(most, held)
    assert held == 0
    assert 5 < most <= 8


def test_who_asks_for_much_is_not_overtaken_and_the_dead_hold_nothing():
    first = keeper(3)
    assert first.stdout.readline() == "held\n"
    all_of_it = keeper(8)
    time.sleep(0.5)
    few = keeper(1)
    with pytest.raises(subprocess.TimeoutExpired):
        few.wait(0.5)  # there would be room
    first.kill()
    assert all_of_it.stdout.readline() == "held\n"
    all_of_it.kill()
    assert few.stdout.readline() == "held\n"
    few.kill()
    for process in (first, all_of_it, few):
        process.wait()
        process.stdout.close()


def test_a_wait_that_is_too_long_is_told_and_leaves_nothing_held():
    shares, other = (Shares("cpu", "a test", lock="test", number=4) for _ in range(2))
    with shares.hold(3), pytest.raises(TimeoutError, match="2 of 4 shares of cpu"), other.hold(2, 0.05):
        pass
    with shares.hold(2), other.hold(2, 0.05):  # the one that was held in vain has been given back
        pass


def test_a_room_is_shared_by_need():
    total = 64 << 30
    one, two = (Room("cpu", total) for _ in range(2))
    with one.hold(needed_bytes(0)), two.hold(needed_bytes(1 << 30)):
        pass
    with one.hold(60 << 30), pytest.raises(TimeoutError), two._shares.hold(5, 0.05):
        pass
    with one.alone(), pytest.raises(TimeoutError), two._shares.hold(1, 0.05):
        pass
    with one.hold(1 << 50):  # all that there is
        pass


SIZES = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros({weight}))

    def forward(self, x):
        {work}
        return {{"y": [x @ x.T, x]}}


def get_inputs():
    return [torch.randn({rows}, 64)]


def get_init_inputs():
    return [1]
"""


@pytest.mark.parametrize(
    ("rows", "weight", "work", "elements"),
    [
        (4096, 1, "", 4096 * 4096 + 4096 * 64),  # the output
        (8, 1 << 20, "", 1 << 20),
        (1 << 20, 1, "return x.sum()", 64 << 20),
        (4096, 1, "x.sum().item()", 4096 * 64),  # the output is not known: the inputs
        (4096, 1, "raise SystemExit", 4096 * 64),
        (4096, 1, "for _ in range(10_000_000):\n            x = x + 1", 4096 * 64),
    ],
)
def test_the_largest_of_a_task_is_known_without_memory(rows, weight, work, elements):
    task = Task("Sizes/One", SIZES.format(rows=rows, weight=weight, work=work))
    assert largest_bytes(task) == pytest.approx(4 * elements, rel=0.001)


def test_nothing_is_known_of_a_task_that_does_not_load():
    assert largest_bytes(Task("Sizes/None", "import no_such_module\n" + SIZES.format(rows=1, weight=1, work=""))) == 0
