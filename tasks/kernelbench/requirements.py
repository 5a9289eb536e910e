"""What some of KernelBench's problems need beside their sources: libraries, and for level 4 the weights of a model.

- `missing` -- what of this a task lacks on this machine.
- `check_requirements` -- the same as an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from kernelgym_env.errors import MissingDataError
from kernelgym_env.settings import hub_cache
from kernelgym_env.tasks.kernelbench.ids import parse_id
from kernelgym_env.tasks.model import Task

__all__ = ["check_requirements", "missing"]

_WITH_WEIGHTS = 4
_WEIGHTS = ("*.safetensors", "*.bin")


def missing(task: Task) -> str:
    """Return what a problem of KernelBench lacks on this machine and how to get it, ``""`` if nothing.

    Two problems of level 3 import einops, and those of level 4 transformers. The weights are looked for where
    `huggingface_hub` keeps them, see `kernelgym_env.settings.hub_cache`. Tasks of other suites are not looked at.
    """
    problem = parse_id(task.id.partition(":")[0])  # a variant has its name behind a colon
    if problem is None:
        return ""
    tree = ast.parse(task.source)
    for library in _libraries(tree):
        if find_spec(library) is None:
            return f"{task.id} imports {library}, which is not installed. Run: pip install {library}"
    model = _model_name(tree) if problem[0] == _WITH_WEIGHTS else ""
    if model and not _has_weights(model):
        return (
            f"{task.id} needs the weights of {model}, which are not in {hub_cache()}. Run: hf download {model} (a "
            f"command of the package huggingface_hub), or set HF_HUB_CACHE to the folder that has them."
        )
    return ""


def check_requirements(task: Task) -> None:
    """Raise if `missing` says anything.

    Raises:
        MissingDataError: with what it says.
    """
    if lacking := missing(task):
        raise MissingDataError(lacking)


def _libraries(tree: ast.Module) -> Iterator[str]:
    """The top-level names of what the module imports."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _model_name(tree: ast.Module) -> str:
    """The text that the module binds to `model_name`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if "model_name" in names:
                return node.value.value
    return ""


def _has_weights(model: str) -> bool:
    folder: Path = hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    return any(True for pattern in _WEIGHTS for _ in folder.glob(f"*/{pattern}"))
