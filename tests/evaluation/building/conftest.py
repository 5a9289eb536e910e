"""A fork server with its builder, a judge that compiles and one that leaves it to torch; each with an own cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelgym_env.evaluation.building import installed
from kernelgym_env.evaluation.building.service import Builder
from kernelgym_env.evaluation.protocols import Deadlines, get_protocol
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.evaluation.workers import Zygote
from kernelgym_env.pools.local import LocalPool
from kernelgym_env.tasks import Task

PROTOCOL = get_protocol("strict").replace(
    min_blocks=2, max_blocks=2, budget_s=0.05, baselines=(), deadlines=Deadlines(build_s=280, import_s=120)
)
REFERENCE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 0.5 + 1.0


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""
Judge = Callable[..., Evaluation]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of caches that the judge, and the builder without one, share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def builder(cache: Path) -> Iterator[Builder]:
    zygote = Zygote("cpu", {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""})
    yield Builder(zygote, cache / "builds")
    zygote.close()


def _judge(fast: bool, cache: Path) -> Iterator[Judge]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELGYM_FAST_BUILDS", str(int(fast)))
        patch.setenv("KERNELGYM_CACHE_DIR", str(cache))
        pool = LocalPool(threads=1)

        def judge(source: str, task: str = REFERENCE) -> Evaluation:
            submission = Submission(Task(id="Test/Half", source=task), source, device="cpu", protocol=PROTOCOL)
            return pool.submit(submission).result()

        judge("class ModelNew: pass")  # the environment is read when the judge starts
        yield judge
        pool.close()


@pytest.fixture(scope="session")
def fast(cache: Path) -> Iterator[Judge]:
    yield from _judge(True, cache)


@pytest.fixture(scope="session")
def stock(cache: Path) -> Iterator[Judge]:
    yield from _judge(False, cache)


@pytest.fixture(scope="session")
def flags() -> list[str]:
    """As torch's own for C++."""
    return [*(part for folder in installed.orders()[0] for part in ("-isystem", folder)), "-fPIC", "-std=c++20"]
