"""A pool that insists on the sandbox, and a way to run code inside a real candidate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from programs import QUICK, RIGHT, TASK

from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.local import LocalPool

MEMORY_GIB = 1.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These run in make test-full: they ask what is left running or lying about, on a machine that has to rest."""
    for item in items:
        if "evaluation/sandbox" in item.path.as_posix():
            item.add_marker(pytest.mark.slow)


_PRELUDE = '''
import ctypes, errno, json, os, signal, socket, subprocess, sys, time


def attempt(act, *arguments, **options):
    """"done", or the name of what it raised."""
    try:
        act(*arguments, **options)
    except BaseException as error:
        return type(error).__name__
    return "done"


def call(number, *arguments):
    """A raw system call: 0, or the name of the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    if libc.syscall(ctypes.c_long(number), *whole) >= 0:
        return 0
    return errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))


'''


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    """One judge for all tests here; a machine whose sandbox is incomplete skips them."""
    pool = LocalPool(threads=1, sandbox="require", memory_gib=MEMORY_GIB)
    first = pool.submit(Submission(TASK, RIGHT, device="cpu", protocol=QUICK)).result(timeout=120)
    if first.status is Status.FAULT:
        pool.close()
        pytest.skip(first.fault)
    assert first.status is Status.CORRECT, first.feedback
    yield pool
    pool.close()


@pytest.fixture
def judge(pool: LocalPool) -> Callable[..., Evaluation]:
    """Judge a source."""

    def run(source: str, **options: Any) -> Evaluation:
        options = {"device": "cpu", "protocol": QUICK, **options}
        return pool.submit(Submission(TASK, source, **options)).result(timeout=180)

    return run


@pytest.fixture
def inside(judge: Callable[..., Evaluation]) -> Callable[..., Any]:
    """Run code in a candidate while it imports; the value of its variable `result`.

    `attempt` and `call` are defined there.
    """

    def run(code: str, **options: Any) -> Any:
        # as letters: paths and long numbers in feedback are shortened
        letters = 'json.dumps(result).encode().hex().translate(str.maketrans("0123456789", "ghijklmnop"))'
        shout = f'\nraise ValueError("<<" + {letters} + ">>")\n'
        evaluation = judge(_PRELUDE + code + shout + RIGHT, **options)
        assert "<<" in evaluation.feedback, (evaluation.status, evaluation.feedback[:3000], evaluation.fault)
        letters = evaluation.feedback.split("<<", 1)[1].split(">>", 1)[0]
        return json.loads(bytes.fromhex(letters.translate(str.maketrans("ghijklmnop", "0123456789"))))

    return run
