"""Running a reference to see whether it works at some sizes, and how much it holds.

Where it can, this runs on torch's meta device: shapes are worked out, nothing is computed and no memory is taken, so a
task of any size is tried in milliseconds. The reference's code runs in the calling process: use it on tasks you trust.

- `Trial` -- what was seen.
- `try_task` -- runs a task.
- `REAL_ELEMENTS` -- up to how many elements it does so on the CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernelgym_env.tasks.model import Task

__all__ = ["REAL_ELEMENTS", "Trial", "try_task"]

REAL_ELEMENTS = 1 << 22
"""Up to so many elements a reference that the meta device cannot run is run on the CPU."""


@dataclass(frozen=True)
class Trial:
    """What a reference did at its sizes.

    Attributes:
        state: ``works``; ``fails``; or ``unknown``, for a reference that the meta device cannot run and that is too
            large to be run for this.
        error: why it fails, or why nobody knows.
        elements: elements of the input, parameter, buffer and output tensors together, as far as they are known.
        shapes: shapes of the input tensors in order; ``()`` in place of a plain value.
    """

    state: str
    error: str = ""
    elements: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def works(self) -> bool:
        """Whether it surely works."""
        return self.state == "works"


def try_task(task: Task, *, call: bool = True) -> Trial:
    """Run a task's reference once, on the meta device, else on the CPU if it holds at most four million elements.

    The global random state is left as it was. Recurrent networks take seconds: the meta device goes through their steps
    one by one.

    Args:
        task: the task.
        call: whether to call the model. If not, only inputs and model are made, and outputs are not counted.
    """
    import torch

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a reference that warns would do so once for each size that is tried
        trial = _run(task, "meta", call)
        if trial.state == "unknown" and trial.elements <= REAL_ELEMENTS:
            trial = _run(task, "cpu", call)
        return trial


def _run(task: Task, device: str, call: bool) -> Trial:
    import torch

    elements = 0
    shapes: tuple[tuple[int, ...], ...] = ()
    try:
        namespace: dict[str, Any] = {"__name__": "reference"}
        exec(compile(task.source, f"<{task.id}>", "exec"), namespace)
        with torch.device(device), torch.no_grad():
            inputs = list(namespace["get_inputs"]())
            shapes = tuple(tuple(value.shape) if isinstance(value, torch.Tensor) else () for value in inputs)
            model = namespace["Model"](*namespace["get_init_inputs"]())
            elements = _elements([inputs, list(model.parameters()), list(model.buffers())])
            elements += _elements(model(*inputs)) if call else 0
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a reference raises, SystemExit too, is what there is to say of it
        said = f"{type(error).__name__}: {error}"
        # an operator without a meta kernel, a value that is asked for, or a tensor put on the CPU by name
        no_answer = device == "meta" and (isinstance(error, NotImplementedError) or "meta" in str(error).lower())
        return Trial("unknown" if no_answer else "fails", said, elements, shapes)
    return Trial("works", "", elements, shapes)


def _elements(value: object) -> int:
    return sum(tensor.numel() for tensor in _tensors(value))


def _tensors(value: object) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
