"""One pool for all tests that need a GPU."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.local import LocalPool


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    made = LocalPool()
    yield made
    made.close()


@pytest.fixture
def judge(pool: LocalPool) -> Callable[..., Evaluation]:
    """Judges one source on the GPU."""
    from gpu_programs import PROTOCOL, TASK

    def run(source: str, on: Any = TASK, **options: Any) -> Evaluation:
        options = {"protocol": PROTOCOL, **options}
        return pool.submit(Submission(on, source, device="cuda", **options)).result(timeout=600)

    return run
