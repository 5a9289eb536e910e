"""Judges side by side: checks together, times alone. With real processes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import QUICK, RIGHT, TASK

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.locks import Turn
from kernelgym_env.evaluation.quiet import Quiet
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.local import LocalPool

ROOT = Path(__file__).resolve().parent.parent.parent
CHECKS = """
import os, sys, time
from kernelgym_env.evaluation.quiet import Quiet
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(what):
    os.write(file, f"{time.monotonic()} {os.getpid()} {what}\\n".encode())
quiet = Quiet("cpu")
for _ in range(int(sys.argv[2])):
    quiet.enter()
    note("check")
    time.sleep(0.03)
    note("waits")
    with quiet.alone():
        note("time")
        time.sleep(0.02)
        note("timed")
    note("check")
    time.sleep(0.01)
    note("waits")
    quiet.leave()
"""


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGYM_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


def test_times_are_taken_while_nobody_checks(runtime):
    log, rounds = runtime / "log", 8
    started = [subprocess.Popen([sys.executable, "-c", CHECKS, str(log), str(rounds)], cwd=ROOT) for _ in range(3)]
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0]
    events = sorted(line.split() for line in log.read_text().splitlines())
    assert len(events) == 3 * rounds * 6
    checking, timing, most = set(), None, 0
    for _, pid, what in sorted(events, key=lambda event: float(event[0])):
        if what == "check":
            assert timing is None
            checking.add(pid)
        elif what == "waits":
            checking.discard(pid)
        elif what == "time":
            assert (checking, timing) == (set(), None)
            timing = pid
        else:
            timing = None
        most = max(most, len(checking))
    assert most > 1  # and checks side by side


TIMES = """
import os, sys, time
from kernelgym_env.evaluation.quiet import Quiet
print("wants", time.monotonic(), flush=True)
with Quiet("cpu").alone():
    print("time", time.monotonic(), flush=True)
    time.sleep(0.1)
    print("timed", time.monotonic(), flush=True)
"""


def timer():
    process = subprocess.Popen([sys.executable, "-c", TIMES], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("wants")
    return process


def times_of(process):
    """When it began and ended to time."""
    with process:
        found = {line.split()[0]: float(line.split()[1]) for line in process.stdout}
    assert process.returncode == 0
    return found


def wait_until_asked(quiet):
    deadline = time.monotonic() + 30
    while not quiet.asked:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_one_who_wants_to_time_asks_and_keeps_newcomers_out(runtime):
    first, second = Quiet("cpu"), Quiet("cpu")
    first.enter()
    assert not first.asked
    waits = timer()
    wait_until_asked(first)
    begun = time.monotonic()
    first.leave()
    second.enter()  # now it does
    entered = time.monotonic()
    found = times_of(waits)
    assert begun < found["time"] < found["timed"] <= entered
    second.leave()


def test_who_checks_gives_way_to_all_who_wait_and_goes_on(runtime):
    checks = Quiet("cpu")
    assert not checks.asked
    checks.give_way()  # who does not check has nothing to give
    checks.enter()
    waiting = [timer() for _ in range(3)]
    wait_until_asked(checks)
    time.sleep(0.3)  # all of them
    checks.give_way()
    back = time.monotonic()
    found = sorted((times_of(process) for process in waiting), key=lambda one: one["time"])
    assert found[-1]["timed"] <= back
    assert all(one["timed"] <= other["time"] for one, other in itertools.pairwise(found))
    assert not checks.asked
    late = timer()
    with pytest.raises(subprocess.TimeoutExpired):
        late.wait(0.3)  # it is here again
    checks.leave()
    times_of(late)


def test_one_in_a_long_step_does_not_keep_others_from_checking_for_good(runtime):
    stuck, checks = Quiet("cpu"), Quiet("cpu")
    stuck.enter()
    checks.enter()
    waits = timer()
    wait_until_asked(checks)
    start = time.monotonic()
    checks.give_way()  # nobody can time: one is stuck
    went_on = time.monotonic() - start
    assert 0.1 < went_on < 20
    wait_until_asked(checks)  # it has not given up
    checks.leave()
    with pytest.raises(subprocess.TimeoutExpired):
        waits.wait(0.2)
    stuck.leave()
    assert times_of(waits)["time"] > start


def test_a_device_that_still_works_is_left_to_the_others_meanwhile(runtime):
    checks, looks, told = Quiet("cpu"), [], []

    def idle():
        assert not Turn("cpu").try_take()  # a lease has been asked for it before
        looks.append(time.monotonic())
        return len(looks) > 3

    def busy():
        free = Turn("cpu")
        assert free.try_take()  # nobody waits for who is asked what it still does
        free.give()
        told.append(len(looks))

    with Quiet("cpu").alone(idle, busy):
        assert len(looks) == 4
    assert told == [1, 2, 3]
    pauses = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert 0.1 <= pauses[0] < pauses[1] < pauses[2]
    free = Turn("cpu")
    assert free.try_take()
    free.give()
    checks.enter()
    assert not checks.asked


def test_where_nobody_checks_times_are_taken_at_once(runtime):
    found = []
    for _ in range(3):
        process = timer()
        start = time.monotonic()
        found.append(times_of(process)["time"] - start)
    assert min(found) < 0.5


def test_several_judges_agree_with_one():
    wrong = RIGHT.replace("0.5", "0.6")
    pool = LocalPool(threads=1, judges=2)
    try:
        sources = [RIGHT, wrong, RIGHT, wrong]
        futures = [pool.submit(Submission(TASK, source, device="cpu", protocol=QUICK)) for source in sources]
        found = [future.result(timeout=120) for future in futures]
        stats = pool.stats()
    finally:
        pool.close()
    assert [one.status for one in found] == [Status.CORRECT, Status.WRONG, Status.CORRECT, Status.WRONG]
    assert set(stats["judges"]) == {"cpu", "cpu/1"}
    assert {one.device for one in found} == {"cpu"}


@pytest.mark.parametrize("judges", [0, -1, True, 2.0, 65])
def test_the_number_of_judges_is_checked(judges):
    with pytest.raises(InvalidOptionError, match="judges must be"):
        LocalPool(judges=judges)
