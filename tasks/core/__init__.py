"""The suite `core`: original tasks that come with the package.

Each reference lies in ``references`` as a file of its own, with sizes for a GPU. `INDEX` holds what the file does not
say: title, description, level, tags and the sizes for a CPU. The files are read as text, never imported.

- `INDEX` -- one `Entry` per task.
- `IDS` -- the task ids, ``KernelGym/<Name>``.
- `load` -- a task by id.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kernelgym_env.errors import unknown_name
from kernelgym_env.tasks.core.index import INDEX
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.packaged import Entry, packaged_task

__all__ = ["IDS", "INDEX", "Entry", "load"]

_REFERENCES = Path(__file__).parent / "references"
_ENTRIES = {f"KernelGym/{entry.name}": entry for entry in INDEX}

IDS = tuple(_ENTRIES)


@cache
def load(task_id: str) -> Task:
    """Return the task with that id.

    Raises:
        UnknownNameError: for any other id.
    """
    if task_id not in _ENTRIES:
        raise unknown_name("task id", task_id, IDS)
    return packaged_task(task_id, _ENTRIES[task_id], _REFERENCES, "core")
