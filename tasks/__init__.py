"""Tasks: the record, the suites, and the ways to name them.

- `Task` -- a reference to be beaten, as data.
- `load_task`, `load_tasks` -- from an id, a suite, a file, a folder or a text.
- `suites`, `task_ids` -- what there is.

Importing this package imports neither torch nor any reference.
"""

from __future__ import annotations

from kernelgym_env.tasks.loading import load_task, load_tasks
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.registry import Suite, suites, task_ids

__all__ = ["Suite", "Task", "load_task", "load_tasks", "suites", "task_ids"]
