"""Fixtures and rules for all tests.

- A test marked `gpu` is skipped where there is no CUDA device. The device is looked for when such a test is about to
  run, and without CUDA: a test process may fork.
- `repo_root` and `shared_data` find files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from kernelgym_env.pools.local import LocalPool

ROOT = Path(__file__).resolve().parent.parent

# A slow machine is no failure; and what fails in one run must fail in the next.
settings.register_profile("kernelgym", deadline=None, max_examples=60, derandomize="CI" in os.environ)
settings.load_profile("kernelgym")


@cache
def _why_no_gpu() -> str | None:
    """The reason to skip a test that needs a device, or None."""
    from kernelgym_env.devices import cuda_device_names

    if not cuda_device_names():
        return "no CUDA device"
    import torch

    return None if torch.version.cuda else "a CUDA device, but a torch without CUDA"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := _why_no_gpu()):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """A function from the name of a file to its path in `shared/data`, beside or inside the checkout.

    It skips the test where the file is missing: that data is no part of the repository.
    """

    def find(name: str) -> Path:
        for folder in (ROOT.parent / "shared" / "data", ROOT / "shared" / "data"):
            if (path := folder / name).exists():
                return path
        pytest.skip(f"shared/data/{name} is not on this machine")

    return find


@pytest.fixture(scope="session")
def local_pool() -> Iterator[LocalPool]:
    """One pool on this machine's CPU for all tests of a process: starting a judge takes seconds."""
    from kernelgym_env.pools.local import LocalPool

    pool = LocalPool(threads=1)
    yield pool
    pool.close()
