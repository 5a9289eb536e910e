"""Whose code a process runs, seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.attribution import Sampler, Shares, owner, supported
from kernelgym_env.evaluation.ownership import added_code, foreign_code

SYSTEM = ("/usr/", "/env/lib/python3/site-packages/")


@pytest.mark.parametrize(
    ("path", "whose"),
    [
        ("/job/tmp/x/k.so", "own"),
        ("/memfd:code (deleted)", "own"),
        ("/jobs-of-others/k.so", "own"),
        ("/usr/lib/x86_64-linux-gnu/libopenblas.so.0", "library"),
        ("/env/lib/python3/site-packages/numpy/core/_multiarray_umath.so", "library"),
        ("/env/lib/python3/site-packages/torch/lib/libtorch_cpu.so", "tensor"),
        ("/env/lib/python3/site-packages/torch/lib/libtorch_python.so", "neutral"),
        ("/usr/lib/libm.so.6", "neutral"),
        ("/usr/bin/python3.11", "neutral"),
        ("[vdso]", "neutral"),
        ("", "neutral"),
    ],
)
def test_owners_of_files(path, whose):
    assert owner(path, "/job", SYSTEM) == whose


def shares(period_s=1e-3, own=0, **files):
    library = {("library", f"{name}.so"): count for name, count in files.items()}
    seen = Counter(own=own, library=sum(files.values()))
    return Shares(seen, Counter(library), period_s)


def test_a_quarter_of_the_work_is_too_much():
    assert foreign_code(shares(own=70, numpy=30), 10, gemm=False) == ["numpy.so"]
    assert foreign_code(shares(own=80, numpy=20), 10, gemm=False) == []


def test_what_takes_microseconds_is_not_the_work():
    assert foreign_code(shares(numpy=30), 100_000, gemm=False) == []
    assert foreign_code(shares(numpy=30), 1_000, gemm=False) == ["numpy.so"]


def test_products_may_come_from_a_library_where_that_is_allowed():
    seen = shares(libscipy_openblas64=90, numpy=10)
    assert foreign_code(seen, 10, gemm=False) == ["libscipy_openblas64.so", "numpy.so"]
    assert foreign_code(seen, 10, gemm=True) == ["numpy.so"]


def test_few_looks_prove_nothing():
    assert foreign_code(shares(numpy=3), 1, gemm=False) == []
    assert foreign_code(Shares(), 1, gemm=False) == []


NUMPY = """
import numpy, sys, time
a = numpy.random.rand(1 << 18)
print("ready", flush=True)
while True:
    numpy.sqrt(a, out=a)
"""


@pytest.fixture
def busy():
    """A process that computes with NumPy until the test ends."""
    process = subprocess.Popen([sys.executable, "-c", NUMPY], stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def until(holds):
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(not supported(), reason="needs Linux on x86-64 or Arm")
def test_what_ends_while_it_is_watched_is_let_go():
    """The first process of a PID namespace waits for its children when it ends, and these for whoever traces them."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {NUMPY!r}], timeout=20)"
    for flags in (["unshare", "--user", "--pid", "--fork", "--mount-proc"], []):
        process = subprocess.Popen(
            [*flags, sys.executable, "-c", child], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            with Sampler(os.getpid(), "/nowhere", lambda: False):
                time.sleep(1.0)
                below = processes.descendants(process.pid)
                for pid in below:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.3)
            assert process.wait(10) is not None
            until(lambda gone=below: not any(os.path.exists(f"/proc/{pid}") for pid in gone))
        finally:
            for pid in processes.descendants(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()


@pytest.mark.skipif(not supported(), reason="needs Linux on x86-64 or Arm")
def test_a_process_is_seen_and_let_go(busy):
    allowed = [False]
    with Sampler(os.getpid(), "/nowhere", lambda: allowed[0]) as sampler:
        while sampler.shares.seen["library"] < 20 and not sampler.shares.problem:
            time.sleep(0.01)
    assert sampler.shares.problem == ""
    assert any("multiarray" in name for _, name in sampler.shares.files)
    until(lambda: "TracerPid:\t0\n" in Path(f"/proc/{busy.pid}/status").read_text())
    allowed[0] = True
    with Sampler(os.getpid(), "/nowhere", lambda: allowed[0]) as sampler:
        while sampler.shares.seen["allowed"] < 20:
            time.sleep(0.01)
    assert sampler.shares.seen["library"] == 0


def test_what_is_below_a_process_stands_still_for_a_while(busy):
    def ticks():
        with open(f"/proc/{busy.pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[11])

    halt = processes.Halt(os.getpid())
    try:
        halt.hold()
        time.sleep(0.05)
        before = ticks()
        time.sleep(0.3)
        assert ticks() == before
    finally:
        halt.release()
    end = time.monotonic() + 20
    while ticks() == before and time.monotonic() < end:
        time.sleep(0.02)
    assert ticks() > before


def test_operators_that_are_only_used_where_nobody_watches():
    watched, plain = shares(own=90), shares(own=5, libtorch_cpu=90)
    assert added_code(watched, 10, plain, 10) == ["libtorch_cpu.so"]
    assert added_code(plain, 10, plain, 10) == []  # it was told then
    assert added_code(watched, 10, watched, 10) == []
    assert added_code(watched, 0, plain, 0) == []
