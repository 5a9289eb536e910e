"""The floor of a task: what is counted, what data sheets say, and what follows from both."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.roofline import (
    FORMATS,
    MACHINES,
    Machine,
    Work,
    count_work,
    fastest_format,
    floor_fraction,
    floor_us,
    machine,
)

amounts = st.floats(0, 1e18)
DEVICE = Machine("made up", 1e12, {"fp64": 1e12, "tf32": 4e12, "fp16": 8e12})


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(32, 16)
        self.unused = nn.Linear(1024, 1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x).relu()


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10_000, 8)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return self.table(indices)


# --- counting


def test_a_matrix_product() -> None:
    work = count_work(torch.matmul, [torch.ones(8, 32), torch.ones(32, 16)])
    assert work == Work(2.0 * 8 * 32 * 16, 4.0 * (8 * 32 + 32 * 16 + 8 * 16), "float32")


def test_a_module_reads_the_parameters_that_it_uses() -> None:
    work = count_work(Linear(), [torch.ones(8, 32)])
    assert work.flops == 2 * 8 * 32 * 16
    assert work.bytes == 4 * (8 * 32 + (32 * 16 + 16) + 8 * 16)


def test_a_convolution() -> None:
    work = count_work(nn.Conv2d(3, 4, 3, bias=False), [torch.ones(2, 3, 10, 10)])
    assert work.flops == 2 * (2 * 4 * 8 * 8) * (3 * 3 * 3)
    assert work.bytes == 4 * (2 * 3 * 100 + 4 * 3 * 9 + 2 * 4 * 64)


def test_a_table_is_read_where_it_is_looked_up() -> None:
    assert count_work(Lookup(), [torch.arange(5)]).bytes == 5 * 8 + 2 * (5 * 8 * 4)


@pytest.mark.parametrize(
    ("call", "read", "written"),
    [
        pytest.param(lambda x: x + 1, 4096, 4096, id="elementwise"),
        pytest.param(lambda x: x + x, 4096, 4096, id="read twice"),
        pytest.param(lambda x: (x[:8] * 2, x.sum()), 4096, 8 * 32 * 4 + 4, id="a slice and the whole"),
        pytest.param(lambda x: x[:8] * 2, 8 * 32 * 4, 8 * 32 * 4, id="a slice"),
        pytest.param(lambda x: x.t(), 0, 0, id="a view"),
        pytest.param(lambda x: x.mul_(2), 4096, 4096, id="in place"),
        pytest.param(lambda x: torch.zeros(4), 0, 16, id="nothing of it"),
        pytest.param(lambda x: {"a": [x.exp()], "b": (x.log(),)}, 4096, 8192, id="a pytree"),
        pytest.param(lambda x: torch.zeros(1).expand(64), 0, 4, id="an expanded output"),
        pytest.param(lambda x: x[0:0] + 1, 0, 0, id="an empty one"),
    ],
)
def test_bytes(call: object, read: int, written: int) -> None:
    assert count_work(call, [torch.ones(32, 32)]).bytes == read + written  # type: ignore[arg-type]


def test_tensors_that_share_a_storage_count_once() -> None:
    whole = torch.ones(3, 100)
    assert count_work(lambda a, b: a * b, [whole[0], whole[1]]).bytes == 3 * 400
    assert count_work(lambda a, b: a * b, [whole[0], whole[0]]).bytes == 2 * 400
    assert count_work(lambda a: a * 2, [torch.ones(1, 100).expand(50, 100)]).bytes == 400 + 50 * 400


@pytest.mark.parametrize(
    ("dtypes", "narrowest"),
    [
        ((torch.float32, torch.bfloat16), "bfloat16"),
        ((torch.float64, torch.float64), "float64"),
        ((torch.int64, torch.int8), "float32"),
        ((torch.int64, torch.float64), "float64"),
    ],
)
def test_the_narrowest_floating_dtype_counts(dtypes: tuple[torch.dtype, ...], narrowest: str) -> None:
    assert count_work(lambda *tensors: tensors, [torch.ones(4).to(dtype) for dtype in dtypes]).dtype == narrowest


def test_what_is_known_takes_the_place_of_what_was_counted() -> None:
    counted = count_work(torch.matmul, [torch.ones(8, 8), torch.ones(8, 8)], known={"flops": 7})
    assert counted == Work(7, 4.0 * 3 * 64, "float32")
    with pytest.raises(UnknownNameError, match="Unknown part of a task's work: 'flop'. Did you mean 'flops'"):
        Work(1, 1).replace({"flop": 1})
    assert Work(1, 1).replace(None) == Work(1, 1)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "1"])
def test_work_that_is_no_amount_is_refused(value: object) -> None:
    for name in ("flops", "bytes"):
        with pytest.raises(InvalidOptionError, match=f"Work {name} must be a finite number of at least 0"):
            Work(**{"flops": 0, "bytes": 0, name: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="dtype"):
        Work(0, 0, 32)  # type: ignore[arg-type]


# --- the floor


@pytest.mark.parametrize(
    ("work", "loose", "expected"),
    [
        (Work(0, 2e6), False, 2.0),
        (Work(4e6, 0), False, 1.0),
        (Work(8e6, 1e6), False, 2.0),
        (Work(8e6, 1e6), True, 1.0),
        (Work(8e6, 0, "float64"), False, 8.0),
        (Work(8e6, 0, "float64"), True, 1.0),
        (Work(8e6, 0, "bfloat16"), True, 1.0),
        (Work(8e6, 1e6, "float8_e4m3fn"), False, 1.0),  # no rate for it, so no bound but the memory's
        (Work(0, 0), False, 0.0),
    ],
)
def test_the_floor(work: Work, loose: bool, expected: float) -> None:
    assert floor_us(work, DEVICE, loose=loose) == expected


@given(amounts, amounts, amounts, amounts, st.booleans())
def test_more_work_never_has_a_lower_floor(flops: float, size: float, more: float, further: float, loose: bool) -> None:
    least = floor_us(Work(flops, size), DEVICE, loose=loose)
    assert floor_us(Work(flops + more, size + further), DEVICE, loose=loose) >= least
    assert floor_us(Work(flops, size), DEVICE, loose=True) <= least


@given(amounts, amounts, st.floats(1, 100))
def test_a_faster_device_never_has_a_higher_floor(flops: float, size: float, factor: float) -> None:
    faster = Machine("", DEVICE.bytes_per_s * factor, {n: r * factor for n, r in DEVICE.flops_per_s.items()})
    assert floor_us(Work(flops, size), faster) <= floor_us(Work(flops, size), DEVICE)


@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9))
def test_the_fraction_falls_with_the_time(floor: float, time: float) -> None:
    assert floor_fraction(floor, time) == pytest.approx(floor / time)
    assert floor_fraction(floor, 2 * time) <= floor_fraction(floor, time)


def test_a_fraction_of_something_unknown_is_unknown() -> None:
    assert math.isnan(floor_fraction(math.nan, 1.0))
    assert math.isnan(floor_fraction(1.0, math.nan))
    assert math.isnan(floor_fraction(1.0, 0.0))


# --- the table


@pytest.mark.parametrize("name", MACHINES)
def test_data_sheets_are_of_the_right_order(name: str) -> None:
    found = machine(name)
    rates = [found.flops_per_s[kind] for kind in ("fp64", "fp32", "tf32", "fp16")]
    assert found.known
    assert found.name == name
    assert rates == sorted(rates)
    assert found.flops_per_s["fp16"] <= found.flops_per_s.get("int8", math.inf)
    assert 2e11 < found.bytes_per_s < 1e13
    assert 1e13 < found.flops_per_s["fp16"] < 1e16


def test_what_was_measured_is_not_below_the_floor() -> None:
    # an H200: relu of 4096² and 16384² float32, a softmax of 4096², a product of 4096² in full float32
    h200, mib = machine("NVIDIA H200"), 2.0**20
    for work, measured in ((Work(0, 128 * mib), 34.8), (Work(0, 2048 * mib), 505.3), (Work(0, 128 * mib), 55.9)):
        assert 0.4 < floor_fraction(floor_us(work, h200), measured) < 1
    assert floor_us(Work(2 * 4096.0**3, 192 * mib), h200) < 2660


@pytest.mark.parametrize("name", ["", "cpu", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090 Laptop GPU"])
def test_an_unknown_device_has_no_floor(name: str) -> None:
    assert not machine(name).known
    assert math.isnan(floor_us(Work(1, 1), machine(name)))


def test_rates_that_are_none_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="number format of 'x': 'bf16'"):
        Machine("x", 1.0, {"bf16": 1.0})
    for rates in ({"fp16": 0.0}, {"fp16": math.nan}):
        with pytest.raises(InvalidOptionError, match="above 0"):
            Machine("x", 1.0, rates)
    with pytest.raises(InvalidOptionError, match="above 0"):
        Machine("x", 0.0)


def test_every_dtype_has_a_format() -> None:
    for dtype in ("float64", "float32", "float16", "bfloat16", "int8", "float8_e5m2", "int32", "bool"):
        assert fastest_format(dtype) in FORMATS
