"""What KernelBench's level 4 needs beside its sources: the library transformers, and the weights of a model.

- `missing` -- what of this a task lacks on this machine.
- `check_requirements` -- the same as an error.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

from kernelgym_env.errors import MissingDataError
from kernelgym_env.settings import hub_cache
from kernelgym_env.tasks.kernelbench.ids import parse_id
from kernelgym_env.tasks.model import Task

__all__ = ["check_requirements", "missing"]

_LEVEL = 4
_LIBRARY = "transformers"
_WEIGHTS = ("*.safetensors", "*.bin")


def missing(task: Task) -> str:
    """Return what a task lacks on this machine and how to get it, ``""`` if nothing; only level 4 needs anything.

    The weights are looked for where `huggingface_hub` keeps them, see `kernelgym_env.settings.hub_cache`.
    """
    if (parse_id(task.id.partition(":")[0]) or (0,))[0] != _LEVEL:  # a variant has its name behind a colon
        return ""
    if find_spec(_LIBRARY) is None:
        return f"{task.id} needs the library {_LIBRARY}, which is not installed. Run: pip install {_LIBRARY}"
    model = _model_name(task.source)
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


def _model_name(source: str) -> str:
    """The text that the module binds to `model_name`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if "model_name" in names:
                return node.value.value
    return ""


def _has_weights(model: str) -> bool:
    folder: Path = hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    return any(True for pattern in _WEIGHTS for _ in folder.glob(f"*/{pattern}"))
