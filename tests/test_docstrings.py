"""Runs the examples in the docstrings.

`pytest --doctest-modules` would name the modules of `tasks` and `wrappers` after their folders, and so import each a
second time. Here every module of the checkout is imported by its one name.
"""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"kernelgym_env": "kernelgym_env", "tasks": "kernelgym_env.tasks", "wrappers": "kernelgym_env.wrappers"}


def _modules() -> Iterator[tuple[str, Path]]:
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not (path.parent / "__init__.py").exists():
                continue  # data, e.g. the references of tasks
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join((package, *(part for part in parts if part != "__init__"))), path


MODULES = dict(_modules())
WITH_EXAMPLES = [name for name, path in MODULES.items() if ">>> " in path.read_text(encoding="utf-8")]


def test_modules_are_found() -> None:
    assert {"kernelgym_env", "kernelgym_env.spaces", "kernelgym_env.tasks", "kernelgym_env.wrappers"} <= set(MODULES)
    assert "kernelgym_env.spaces" in WITH_EXAMPLES


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in PACKAGES:
            raise
        pytest.skip(f"{name} needs {error.name}")
    assert Path(module.__file__ or "").resolve() == MODULES[name]
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
