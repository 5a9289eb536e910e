"""Floors of tasks on devices, counted without one of them."""

from __future__ import annotations

import math

import pytest

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.roofline import Machine, Work, bound_of, count_work, machine
from kernelgym_env.evaluation.roofline_table import roofline_table, work_of
from kernelgym_env.tasks import Task, load_task, load_tasks

SLOW_MEMORY = Machine("slow memory", 1e9, {"tf32": 1e15, "fp16": 1e15})
SLOW_CORES = Machine("slow cores", 1e15, {"tf32": 1e9, "fp16": 2e9})

SOURCE = """
import torch
from torch import nn

N = {n}


class Model(nn.Module):
    def forward(self, x):
        return {call}


def get_inputs():
    return [torch.rand(N)]


def get_init_inputs():
    return []
"""


def task(call: str, n: int = 64) -> Task:
    return Task("Test/Roofline", SOURCE.format(call=call, n=n))


def test_the_work_of_tasks_is_the_same_as_on_a_device() -> None:
    for known in load_tasks("core"):
        if known.id == "KernelGym/TransformerBlock":
            continue  # torch's counter does not know the CPU's own attention
        sized = known.for_device("cpu")
        namespace: dict[str, object] = {}
        exec(sized.source, namespace)
        model = namespace["Model"](*namespace["get_init_inputs"]())  # type: ignore[operator]
        assert work_of(sized) == count_work(model, namespace["get_inputs"]()), known.id  # type: ignore[operator]


def test_a_task_too_large_for_this_machine_is_counted() -> None:
    work = work_of(task("x * 2", n=1 << 45))
    assert work == Work(0.0, 2.0 * 4 * (1 << 45))


def test_what_the_meta_device_cannot_run_is_counted_on_the_cpu_while_it_is_small() -> None:
    assert work_of(task("x[x.sum().item() > 0 and 0 :] * 2")) == Work(0.0, 2.0 * 4 * 64)
    with pytest.raises(InvalidOptionError, match="The work of Test/Roofline cannot be counted: "):
        work_of(task("x[x.sum().item() > 0 and 0 :] * 2", n=1 << 23))


def test_a_reference_that_fails_says_so_in_its_row() -> None:
    with pytest.raises(InvalidOptionError, match="cannot be counted: NameError: name 'y' is not defined"):
        work_of(task("x + y"))
    row, other = roofline_table([task("x + y"), task("x + x")], [SLOW_MEMORY])
    assert (row.work, row.floors_us, row.bounds) == (None, {}, {})
    assert "NameError" in row.to_dict()["why"]
    assert other.why == "" and other.floors_us["slow memory"] == pytest.approx(2 * 4 * 64 / 1e9 * 1e6)


def test_a_table() -> None:
    (row,) = roofline_table([load_task("KernelGym/Matmul")], [SLOW_MEMORY, SLOW_CORES, machine("another")])
    assert row.work is not None
    assert row.floors_us["slow memory"] == pytest.approx(row.work.bytes / 1e9 * 1e6)
    assert row.floors_us["slow cores"] == pytest.approx(row.work.flops / 1e9 * 1e6)
    assert math.isnan(row.floors_us["another"])
    assert row.bounds == {"slow memory": "memory", "slow cores": "compute", "another": ""}


def test_tasks_have_the_sizes_of_a_gpu() -> None:
    known = load_task("KernelGym/RowSum")
    (row,) = roofline_table([known], [])
    assert row.work == work_of(known.for_device("cuda")) != work_of(known.for_device("cpu"))


def test_a_loose_tolerance_lowers_the_floor() -> None:
    floors = [
        roofline_table([load_task("KernelGym/Matmul")], [SLOW_CORES], protocol=name)[0].floors_us["slow cores"]
        for name in ("strict", "makora")
    ]
    assert floors[0] == 2 * floors[1]
    with pytest.raises(UnknownNameError, match="protocol"):
        roofline_table([], [], protocol="none")


def test_what_a_floor_comes_from() -> None:
    work = Work(1e9, 1e9)
    assert [bound_of(work, device) for device in (SLOW_MEMORY, SLOW_CORES, machine("another"))] == [
        "memory",
        "compute",
        "",
    ]
