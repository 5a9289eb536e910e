"""The floors of tasks on devices, worked out without one of them.

The work of a reference is counted on torch's meta device, where shapes are worked out and nothing is computed, so that
a machine without a GPU can tell the floors of tasks at the sizes of one.

- `work_of` -- operations and bytes of a task.
- `Row` -- a task's work and its floor on each device.
- `roofline_table` -- the rows of tasks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym_env.errors import InvalidOptionError, MissingDataError
from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.evaluation.roofline import Machine, Work, bound_of, count_work, floor_us, is_loose
from kernelgym_env.tasks.kernelbench.requirements import check_requirements
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.trial import REAL_ELEMENTS, try_task

__all__ = ["Row", "roofline_table", "work_of"]

_KIND = "cuda"  # the devices that have data sheets


@dataclass(frozen=True)
class Row:
    """A task and its floors.

    Attributes:
        task_id: the task's id.
        work: what a call has to do; None where it cannot be counted.
        floors_us: microseconds by the name of the device, NaN for one without a data sheet; empty without work.
        bounds: by the name of the device what the floor comes from: ``memory``, ``compute``, or ``""``.
        why: why there is no work, ``""`` if there is.
    """

    task_id: str
    work: Work | None
    floors_us: Mapping[str, float]
    bounds: Mapping[str, str]
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "task_id": self.task_id,
            "work": None if self.work is None else self.work.to_dict(),
            "floors_us": dict(self.floors_us),
            "bounds": dict(self.bounds),
            "why": self.why,
        }


def work_of(task: Task) -> Work:
    """Count the work of one call of a task's reference at the sizes that its source has.

    The reference's code runs in the calling process, so use it on tasks you trust. A reference that the meta device
    cannot run is called on the CPU if it holds at most four million elements.

    Args:
        task: sized for the device that is meant.

    Raises:
        InvalidOptionError: if the reference fails, or neither device can run it.
        MissingDataError: if it needs a library or weights that are not on this machine.

    >>> from kernelgym_env.tasks import load_task
    >>> work_of(load_task("KernelGym/RowSum").for_device("cpu")).flops
    0.0
    """
    import torch

    check_requirements(task)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _counted(task, "meta")
        except Exception as error:  # whatever a reference raises there; the trial says what comes of it
            first = error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # what is no Exception comes from a reference, as SystemExit does
            raise InvalidOptionError(f"The reference of {task.id} raises {type(error).__name__}: {error}") from error
        trial = try_task(task)
        if not trial.works or trial.elements > REAL_ELEMENTS:
            said = trial.error or f"{type(first).__name__}: {first}"
            raise InvalidOptionError(f"The work of {task.id} cannot be counted: {said}")
        return _counted(task, "cpu")


def roofline_table(
    tasks: Iterable[Task], machines: Sequence[Machine], *, protocol: str | Protocol = "strict"
) -> list[Row]:
    """Floors of tasks on devices, at the sizes that they have on a GPU.

    Args:
        tasks: as `kernelgym_env.tasks.load_tasks` gives them; they are sized here.
        machines: from `kernelgym_env.evaluation.roofline.machine` or of your own.
        protocol: how submissions are judged: where its tolerance lets 16-bit arithmetic pass, operations go faster.

    Returns:
        A row for each task in order; one whose work cannot be counted says why.

    Raises:
        UnknownNameError: for an unknown protocol.
    """
    loose = is_loose(get_protocol(protocol))
    return [_row(task.for_device(_KIND), machines, loose) for task in tasks]


def _row(task: Task, machines: Sequence[Machine], loose: bool) -> Row:
    try:
        work = work_of(task)
    except (InvalidOptionError, MissingDataError) as error:
        return Row(task.id, None, {}, {}, str(error))
    floors = {device.name: floor_us(work, device, loose=loose) for device in machines}
    bounds = {device.name: bound_of(work, device, loose=loose) for device in machines}
    return Row(task.id, work, floors, bounds)


def _counted(task: Task, device: str) -> Work:
    import torch

    namespace: dict[str, Any] = {"__name__": "reference"}
    exec(compile(task.source, f"<{task.id}>", "exec"), namespace)
    with torch.device(device), torch.no_grad():
        inputs = list(namespace["get_inputs"]())
        model = namespace["Model"](*namespace["get_init_inputs"]())
        return count_work(model, inputs)
