"""What the tests of evaluation share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from programs import QUICK, TASK

from kernelgym_env.evaluation.session import Session
from kernelgym_env.evaluation.submission import Submission


@pytest.fixture
def judge(local_pool):
    """Judge a source on the CPU: ``judge(source, on=TASK, protocol=QUICK, **options of Submission)``."""

    def run(source, on=TASK, protocol=QUICK, **options):
        options = {"device": "cpu", "protocol": protocol, **options}
        return local_pool.submit(Submission(on, source, **options)).result(timeout=120)

    return run


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A judge's session on the CPU, in this process."""
    made = Session("cpu", "cpu", 1)
    made.prepare()
    yield made
    made.close()
