"""Gymnasium environments in which a language model writes GPU kernels over several turns.

Importing the package registers its environments with Gymnasium and imports nothing heavy: torch is loaded when the
first evaluation starts.

    import gymnasium as gym
    import kernelgym_env

    env = gym.make("KernelGym/Fake-v0")

The names below are loaded on first use.

- `KernelEnv` -- the environment behind every id.
- `Submission`, `Evaluation`, `Status`, `Finding`, `Timing` -- what goes into an evaluation and what comes out.
- `load_task`, `load_tasks` -- tasks by id.
- `score` -- evaluates one source without an environment.
- `device_lease` -- holds a device for training, and hands it over when an evaluation wants to time.
- `render_prompt`, `messages`, `extract_source` -- from observation to prompt, and from reply to source.
- `tasks`, `wrappers` -- the sub-packages of these names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelgym_env._checkout import adopt
from kernelgym_env._version import __version__

adopt()  # before any import that may need the sub-packages `tasks` and `wrappers`

from kernelgym_env.registration import register_environments  # noqa: E402

if TYPE_CHECKING:
    from kernelgym_env import tasks, wrappers
    from kernelgym_env.env import KernelEnv
    from kernelgym_env.evaluation.lease import device_lease
    from kernelgym_env.evaluation.result import Evaluation, Finding, Status, Timing
    from kernelgym_env.evaluation.submission import Submission
    from kernelgym_env.prompts import extract_source, messages, render_prompt
    from kernelgym_env.scoring import score
    from kernelgym_env.tasks import load_task, load_tasks

__all__ = [
    "Evaluation",
    "Finding",
    "KernelEnv",
    "Status",
    "Submission",
    "Timing",
    "__version__",
    "device_lease",
    "extract_source",
    "load_task",
    "load_tasks",
    "messages",
    "render_prompt",
    "score",
    "tasks",
    "wrappers",
]

_SOURCES = {
    "Evaluation": "kernelgym_env.evaluation.result",
    "Finding": "kernelgym_env.evaluation.result",
    "KernelEnv": "kernelgym_env.env",
    "Status": "kernelgym_env.evaluation.result",
    "Submission": "kernelgym_env.evaluation.submission",
    "Timing": "kernelgym_env.evaluation.result",
    "device_lease": "kernelgym_env.evaluation.lease",
    "extract_source": "kernelgym_env.prompts",
    "load_task": "kernelgym_env.tasks",
    "load_tasks": "kernelgym_env.tasks",
    "messages": "kernelgym_env.prompts",
    "render_prompt": "kernelgym_env.prompts",
    "score": "kernelgym_env.scoring",
}
"""The module in which each lazy name is defined."""

_SUBPACKAGES = frozenset({"tasks", "wrappers"})


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return import_module(f"{__name__}.{name}")
    source = _SOURCES.get(name)
    if source is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(source), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_environments()
