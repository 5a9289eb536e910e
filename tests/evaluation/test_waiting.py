"""What the kernel counts of processes that wait for a processor, with real ones that share a processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernelgym_env.evaluation.waiting import spent_s, usage, waited_ns

SPIN = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])]); print(flush=True)\nwhile True: pass"
CORE = min(os.sched_getaffinity(0))
SECONDS = 0.4


@contextmanager
def spinning() -> Iterator[int]:
    """A process that keeps one processor busy, as soon as it is let go on; its id."""
    with subprocess.Popen([sys.executable, "-c", SPIN, str(CORE)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        try:
            yield process.pid
        finally:
            process.kill()


def let_run(pids: list[int]) -> float:
    """Wall seconds for which processes went on."""
    start = time.perf_counter()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    time.sleep(SECONDS)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    spent = time.perf_counter() - start
    time.sleep(0.05)  # the signal is taken at the end of a slice
    return spent


@pytest.fixture
def two() -> Iterator[tuple[int, int]]:
    with spinning() as one, spinning() as other:
        yield one, other


def test_waiting_for_a_stranger_is_taken_off_and_for_its_own_is_not(two: tuple[int, int]) -> None:
    alone, ours = usage(two[0], [two[0]]), usage(two[0], two)
    wall = let_run([*two])
    as_stranger = spent_s(wall, 0, alone, usage(two[0], [two[0]]))
    as_helper = spent_s(wall, 0, ours, usage(two[0], two))
    assert as_stranger < 0.75 * wall
    assert as_helper > as_stranger + 0.15 * wall  # what else runs on the machine is a stranger to both


def test_what_its_thread_ran_counts_however_long_the_asker_waited(two: tuple[int, int]) -> None:
    before = usage(two[0], [two[0]])
    wall = let_run([two[0]])
    after = usage(two[0], [two[0]])
    assert before is not None and after is not None
    ran = (after.main_ns - before.main_ns) * 1e-9
    assert spent_s(wall, int(wall * 1e9), before, after) == pytest.approx(min(ran, wall))


def test_nothing_is_taken_off_where_processes_came_or_went(two: tuple[int, int]) -> None:
    before = usage(two[0], [two[0]])
    wall = let_run([*two])
    assert spent_s(wall, 0, before, usage(two[0], two)) == wall
    assert spent_s(wall, 0, None, usage(two[0], two)) == wall


def test_a_process_that_there_is_not_has_no_counts(two: tuple[int, int]) -> None:
    assert usage(two[0], [two[0]]) is not None
    assert usage(two[0], [two[0], 2**22 + 1]) is None  # above the greatest id that Linux gives


def test_this_thread_has_waited_for_some_time() -> None:
    assert 0 <= waited_ns() <= waited_ns()
