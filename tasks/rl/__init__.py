"""The suite `rl`: what training by reinforcement learning computes, as tasks.

Losses from logits with their gradients, advantages, returns, statistics, replay. Each reference lies in ``references``
as a file of its own and says in its docstring which of the field's conventions it takes; `INDEX` holds what the file
does not say. ``experts`` has Triton kernels that are judged correct, under the same names. All are read as text, never
imported.

- `INDEX` -- one `RlEntry` per task.
- `IDS` -- the task ids, ``KernelRL/<Name>``.
- `load` -- a task by id.
- `expert` -- the expert kernel of a task, if there is one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kernelgym_env.errors import unknown_name
from kernelgym_env.tasks.files import read_source
from kernelgym_env.tasks.model import ENV_VERSION, Task
from kernelgym_env.tasks.packaged import packaged_task
from kernelgym_env.tasks.rl.index import INDEX, RlEntry

__all__ = ["IDS", "INDEX", "RlEntry", "expert", "load"]

_FOLDER = Path(__file__).parent
_ENTRIES = {f"KernelRL/{entry.name}": entry for entry in INDEX}

IDS = tuple(_ENTRIES)


@cache
def load(task_id: str) -> Task:
    """Return the task with that id.

    Raises:
        UnknownNameError: for any other id.
    """
    entry = _entry(task_id)
    return packaged_task(task_id, entry, _FOLDER / "references", "rl", input_laws=entry.input_laws)


def expert(task_id: str) -> str | None:
    """Return the source of a task's expert kernel (`ModelNew` in Triton), None where there is none yet.

    Args:
        task_id: an id of this suite, with or without ``-v0``.

    Raises:
        UnknownNameError: for any other id.
    """
    path = _FOLDER / "experts" / f"{_entry(task_id.removesuffix(ENV_VERSION)).file}.py"
    return read_source(path) if path.exists() else None


def _entry(task_id: str) -> RlEntry:
    if task_id not in _ENTRIES:
        raise unknown_name("task id", task_id, IDS)
    return _ENTRIES[task_id]
