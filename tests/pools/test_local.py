"""The local pool with real judges: order, faults, pausing, closing, forked children."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from programs import QUICK, RIGHT, TASK

from kernelgym_env import pools
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.local import LocalPool

WRONG = RIGHT.replace("0.5", "0.6")


def submission(source=WRONG, **options):
    return Submission(TASK, source, device="cpu", protocol=QUICK, **options)


@pytest.fixture
def pool():
    made = LocalPool(threads=1)
    yield made
    made.close()


def test_a_killed_judge_is_replaced_and_the_submission_judged(local_pool):
    local_pool.warm("cpu")
    before = local_pool.stats()
    hang = "while True: pass\n" + RIGHT
    future = local_pool.submit(submission(hang))
    time.sleep(1.0)
    os.kill(before["judges"]["cpu"], signal.SIGKILL)
    assert future.result(timeout=60).status is Status.TIMEOUT
    after = local_pool.stats()
    assert after["judge_restarts"] == before["judge_restarts"] + 1
    assert after["judges"]["cpu"] != before["judges"]["cpu"]


def test_a_judge_that_keeps_dying_is_a_fault(pool):
    stop = threading.Event()

    def killer():
        while not stop.is_set():
            for pid in pool.stats()["judges"].values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        evaluation = pool.submit(submission()).result(timeout=120)
    finally:
        stop.set()
        thread.join()
    assert evaluation.status is Status.FAULT
    assert evaluation.fault
    assert not evaluation.valid


def test_a_zygote_that_dies_is_replaced(local_pool):
    local_pool.warm("cpu")
    (zygote,) = processes.children(local_pool.stats()["judges"]["cpu"])
    os.kill(zygote, signal.SIGKILL)
    assert local_pool.submit(submission()).result(timeout=60).status is Status.WRONG


def test_lower_priority_numbers_run_first_and_equal_ones_in_order(pool):
    order = []
    pool.pause()
    futures = []
    for name, priority in (("late", 5), ("first", 0), ("second", 0), ("urgent", -1)):
        future = pool.submit(submission(), priority=priority)
        future.add_done_callback(lambda _, name=name: order.append(name))
        futures.append(future)
    assert pool.stats()["waiting"] == 4
    pool.resume()
    for future in futures:
        future.result(timeout=60)
    assert order == ["urgent", "first", "second", "late"]


def test_pause_holds_what_waits(pool):
    pool.pause()
    future = pool.submit(submission())
    time.sleep(0.3)
    assert not future.done()
    pool.resume()
    assert future.result(timeout=60).status is Status.WRONG


def test_a_cancelled_submission_is_never_run(pool):
    pool.pause()
    first, second = pool.submit(submission()), pool.submit(submission())
    assert first.cancel()
    pool.resume()
    assert second.result(timeout=60).status is Status.WRONG
    assert pool.stats()["ended"] == {"wrong": 1}


def test_closing_ends_everything_and_cancels_what_waits():
    pool = LocalPool(threads=1)
    pool.warm("cpu")
    judge = pool.stats()["judges"]["cpu"]
    family = [judge, *processes.descendants(judge)]
    pool.pause()
    waiting = pool.submit(submission())
    pool.close()
    assert waiting.cancelled()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and any(os.path.exists(f"/proc/{pid}") for pid in family):
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in family)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(submission())


def test_closing_while_a_submission_runs_does_not_hang():
    pool = LocalPool(threads=1)
    pool.warm("cpu")
    future = pool.submit(submission("while True: pass\n" + RIGHT))
    time.sleep(0.5)
    start = time.monotonic()
    pool.close()
    assert future.result(timeout=20).status is Status.FAULT
    assert time.monotonic() - start < 15


def test_many_threads_share_a_pool(local_pool):
    results = []

    def ask():
        results.append(local_pool.submit(submission()).result(timeout=120).status)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [Status.WRONG] * 8


def test_the_secret_replays_inputs(local_pool):
    shout = RIGHT.replace("return", "raise ValueError(f'sum {x.sum().item()}') #")
    texts = []
    for _ in range(2):
        pool = LocalPool(threads=1)
        pool.secret = b"replay"
        texts.append(pool.submit(submission(shout)).result(timeout=60).feedback)
        pool.close()
    assert texts[0] == texts[1]
    assert local_pool.submit(submission(shout)).result(timeout=60).feedback != texts[0]


def test_negative_threads_are_refused():
    with pytest.raises(InvalidOptionError, match="-1"):
        LocalPool(threads=-1)


def test_a_gpu_that_is_not_there_is_said(local_pool, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(InvalidOptionError, match="GPU"):
        local_pool.submit(Submission(TASK, RIGHT, device="cuda:7"))


SCRIPT = """
import os, signal, sys
from kernelgym_env import pools
from kernelgym_env.tasks import Task
pool = pools.get("local")
pool.warm("cpu")
print(pool.stats()["judges"]["cpu"], flush=True)
{end}
"""


@pytest.mark.parametrize(
    "end", ["", "os.kill(os.getpid(), signal.SIGKILL)", "raise ValueError", "sys.exit(3)", "os._exit(1)"]
)
def test_nothing_outlives_the_client(end, repo_root):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(end=end)], cwd=repo_root, capture_output=True, text=True, timeout=60
    )
    judge = int(done.stdout.split()[0])
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline and os.path.exists(f"/proc/{judge}"):
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{judge}")


def test_the_environment_says_how_many_judges_the_pool_called_local_has(monkeypatch):
    pools.get("local").close()  # one that another test left
    monkeypatch.setenv("KERNELGYM_JUDGES", "2")
    pool = pools.get("local")
    try:
        pool.warm("cpu")
        assert set(pool.stats()["judges"]) == {"cpu", "cpu/1"}
    finally:
        pool.close()
