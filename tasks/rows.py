"""Tasks as rows of a data set, for trainers.

- `to_dataset_rows` -- plain dicts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernelgym_env import devices
from kernelgym_env.errors import unknown_name
from kernelgym_env.evaluation.submission import check_backend, check_library_ops
from kernelgym_env.prompts import task_prompt
from kernelgym_env.tasks.model import Task

__all__ = ["FORMS", "to_dataset_rows"]

FORMS = ("text", "chat")
"""Forms of a prompt: a text, or a list with one chat message."""


def to_dataset_rows(
    tasks: Iterable[Task],
    *,
    kind: str = "cuda",
    backend: str = "auto",
    protocol: str = "strict",
    library_ops: str | None = None,
    form: str = "text",
) -> list[dict[str, Any]]:
    """Return a row for each task, of text, numbers and lists alone: ``datasets.Dataset.from_list`` takes them.

    Args:
        tasks: the tasks, in the order of the rows.
        kind: ``cuda`` or ``cpu``: for which device the tasks are sized.
        backend: the kernel language that prompts ask for, one for that kind of device; ``auto`` for any.
        protocol: name of the protocol that prompts describe.
        library_ops: policy that overrides the protocol's.
        form: ``text`` for the prompt as a text, or ``chat`` for ``[{"role": "user", "content": text}]``.

    Returns:
        Dicts with

        - ``prompt``: what the first observation of the task's environment says.
        - ``task_id``, ``env_id``: for `load_task` and for the column that a reward function gets.
        - ``level``, ``title``, ``tags``.
        - ``task_hash``: of the sized reference, as in `Evaluation.task_hash`.
        - ``reference``: the sized reference's source.

    Raises:
        UnknownNameError: for an unknown name.
        InvalidOptionError: for a backend that is not for the kind of device.

    >>> from kernelgym_env.tasks import load_tasks
    >>> row = to_dataset_rows(load_tasks("KernelGym/RowSoftmax"), form="chat")[0]
    >>> row["task_id"], row["level"], row["prompt"][0]["role"]
    ('KernelGym/RowSoftmax', 1, 'user')
    """
    if form not in FORMS:
        raise unknown_name("form of a prompt", form, FORMS)
    devices.check_backend_kind(check_backend(backend), kind)
    check_library_ops(library_ops)
    rows = []
    for task in tasks:
        sized = task.for_device(kind)
        prompt = task_prompt(sized, kind=kind, backend=backend, protocol=protocol, library_ops=library_ops)
        rows.append(
            {
                "prompt": prompt if form == "text" else [{"role": "user", "content": prompt}],
                "task_id": task.id,
                "env_id": task.env_id,
                "level": task.level,
                "title": task.title,
                "tags": list(task.tags),
                "task_hash": sized.hash,
                "reference": sized.source,
            }
        )
    return rows
