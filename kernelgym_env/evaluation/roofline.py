"""The floor of a task: the least time that its work takes on a device, by the device's data sheet.

A reference does a number of floating-point operations and has to read its inputs and parameters and to write its
outputs once. Neither goes faster than the device's peak rates, so the greater of the two times is a floor (S. Williams,
A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", 2009).

The floor is no proof. A better algorithm may need fewer operations, and what the second-level cache holds at the end
has not gone to memory yet. So a time below it is a reason to measure again, and the share of the peak that a kernel
reaches is something to report; neither decides a verdict. A device that is not in the table has no floor: NaN.

- `Work` -- operations and bytes of a call.
- `count_work` -- those of a reference, counted in one call.
- `Machine` -- peak rates of a device.
- `machine` -- the data sheet of a device, by its name.
- `fastest_format`, `is_loose` -- the fastest number format that a tolerance may let pass.
- `floor_us`, `floor_fraction` -- the floor, and a time's share of it.
- `bound_of` -- whether the floor comes from bytes or from operations.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.protocols import Protocol

if TYPE_CHECKING:
    import torch

__all__ = [
    "FORMATS",
    "MACHINES",
    "Machine",
    "Work",
    "bound_of",
    "count_work",
    "fastest_format",
    "floor_fraction",
    "floor_us",
    "is_loose",
    "machine",
]

FORMATS = ("fp64", "fp32", "tf32", "fp16", "fp8", "int8")
"""Number formats that data sheets have rates for; bfloat16 goes as fast as ``fp16`` on all devices of the table that
have it."""

_DEFAULT_FORMAT = "tf32"
_LOOSE = 1e-3
_FORMAT_OF = {
    "float64": "fp64",
    "complex128": "fp64",
    "float32": "tf32",
    "complex64": "tf32",
    "float16": "fp16",
    "bfloat16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "int8": "int8",
    "uint8": "int8",
}


@dataclass(frozen=True)
class Work:
    """What one call of a reference has to do.

    Attributes:
        flops: floating-point operations, a multiplication with its addition counted as two.
        bytes: bytes of inputs and parameters that are read, and of outputs that are written, each counted once.
        dtype: torch's name of the narrowest floating dtype among them, which bounds the rate of the operations.

    Raises:
        InvalidOptionError: for a number that is negative or not finite.

    >>> Work(flops=2e9, bytes=1e6).replace({"flops": 1e9}).flops
    1000000000.0
    """

    flops: float
    bytes: float
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("flops", "bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InvalidOptionError(f"Work {name} must be a finite number of at least 0, got {value!r}.")
        if not isinstance(self.dtype, str):
            raise InvalidOptionError(f"Work dtype must be the name of a dtype of torch, got {self.dtype!r}.")

    def replace(self, known: Mapping[str, Any] | None) -> Work:
        """A copy in which what is known better takes the place of what was counted; None changes nothing.

        Args:
            known: ``flops``, ``bytes`` or ``dtype`` by name.

        Raises:
            UnknownNameError: for another name.
            InvalidOptionError: for a number that is negative or not finite.
        """
        names = [item.name for item in dataclasses.fields(self)]
        for name in known or {}:
            if name not in names:
                raise unknown_name("part of a task's work:", name, names)
        return dataclasses.replace(self, **(known or {}))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Machine:
    """Peak rates of a device, without structured sparsity.

    Attributes:
        name: as the driver calls it.
        bytes_per_s: bandwidth of its memory; NaN if unknown.
        flops_per_s: operations per second by one of `FORMATS`; a format that is missing has no bound.
    """

    name: str
    bytes_per_s: float = math.nan
    flops_per_s: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.flops_per_s:
            if name not in FORMATS:
                raise unknown_name(f"number format of {self.name!r}:", name, FORMATS)
        if any(not value > 0 for value in self.flops_per_s.values()) or self.bytes_per_s <= 0:
            raise InvalidOptionError(f"Rates of {self.name!r} must be above 0.")
        object.__setattr__(self, "flops_per_s", MappingProxyType(dict(self.flops_per_s)))

    @property
    def known(self) -> bool:
        """Whether it has a floor."""
        return not math.isnan(self.bytes_per_s)


def _sheet(gb_per_s: float, **tera: float) -> tuple[float, Mapping[str, float]]:
    return gb_per_s * 1e9, {name: value * 1e12 for name, value in tera.items()}


# NVIDIA's data sheets. Tensor-core rates are halved where a sheet gives them with sparsity only. fp64 and fp32 are the
# greater of the rates with and without tensor cores, fp16 is that with 16-bit accumulation where a sheet has it.
_H100_SXM = {"fp64": 67.0, "fp32": 67.0, "tf32": 494.7, "fp16": 989.4, "fp8": 1978.9, "int8": 1978.9}
_A100 = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "int8": 624.0}
_SHEETS = {
    # "NVIDIA B200 / HGX B200" data sheet, per GPU
    "NVIDIA B200": _sheet(8000, fp64=40, fp32=80, tf32=1125, fp16=2250, fp8=4500, int8=4500),
    # "NVIDIA H200 Tensor Core GPU" data sheet: the cores of an H100, other memory
    "NVIDIA H200": _sheet(4800, **_H100_SXM),
    "NVIDIA H200 NVL": _sheet(4800, fp64=60, fp32=60, tf32=417.5, fp16=835.5, fp8=1670.5, int8=1670.5),
    # "NVIDIA H100 Tensor Core GPU" data sheet and architecture white paper: SXM5, PCIe, NVL (per GPU)
    "NVIDIA H100 80GB HBM3": _sheet(3350, **_H100_SXM),
    "NVIDIA H100 PCIe": _sheet(2000, fp64=51.2, fp32=51.2, tf32=378, fp16=756, fp8=1513, int8=1513),
    "NVIDIA H100 NVL": _sheet(3900, fp64=60, fp32=60, tf32=417.5, fp16=835.5, fp8=1670.5, int8=1670.5),
    # "NVIDIA H20" data sheet
    "NVIDIA H20": _sheet(4000, fp64=1, fp32=44, tf32=74, fp16=148, fp8=296, int8=296),
    # "NVIDIA A100 Tensor Core GPU" data sheet: SXM4 and PCIe, 40 and 80 GB
    "NVIDIA A100-SXM4-80GB": _sheet(2039, **_A100),
    "NVIDIA A100-SXM4-40GB": _sheet(1555, **_A100),
    "NVIDIA A100 80GB PCIe": _sheet(1935, **_A100),
    "NVIDIA A100-PCIE-40GB": _sheet(1555, **_A100),
    # "NVIDIA L40S", "NVIDIA L40" and "NVIDIA L4" data sheets
    "NVIDIA L40S": _sheet(864, fp64=1.43, fp32=91.6, tf32=183, fp16=366, fp8=733, int8=733),
    "NVIDIA L40": _sheet(864, fp64=1.41, fp32=90.5, tf32=90.5, fp16=181.05, fp8=362, int8=362),
    "NVIDIA L4": _sheet(300, fp64=0.49, fp32=30.3, tf32=60, fp16=121, fp8=242.5, int8=242.5),
    # "NVIDIA A10" data sheet
    "NVIDIA A10": _sheet(600, fp64=0.98, fp32=31.2, tf32=62.5, fp16=125, int8=250),
    # architecture white papers of Ada (AD102) and Ampere (GA102), appendix A
    "NVIDIA GeForce RTX 4090": _sheet(1008, fp64=1.29, fp32=82.6, tf32=82.6, fp16=330.3, fp8=660.6, int8=660.6),
    "NVIDIA GeForce RTX 3090": _sheet(936, fp64=0.56, fp32=35.6, tf32=35.6, fp16=142, int8=284),
    # "NVIDIA V100" and "NVIDIA T4" data sheets; neither has TF32
    "Tesla V100-SXM2-32GB": _sheet(900, fp64=7.8, fp32=15.7, tf32=15.7, fp16=125),
    "Tesla V100-SXM2-16GB": _sheet(900, fp64=7.8, fp32=15.7, tf32=15.7, fp16=125),
    "Tesla T4": _sheet(320, fp64=0.25, fp32=8.1, tf32=8.1, fp16=65, int8=130),
}

MACHINES: Mapping[str, Machine] = MappingProxyType({name: Machine(name, *rates) for name, rates in _SHEETS.items()})
"""Devices by the name that the driver gives them. A variant has a name of its own (a MIG slice, a laptop's GPU), so
that none is taken for another."""


def machine(name: str) -> Machine:
    """The data sheet of a device; one without rates where there is none in the table.

    >>> machine("NVIDIA H200").bytes_per_s
    4800000000000.0
    >>> machine("NVIDIA H100 80GB HBM3 MIG 1g.10gb").known
    False
    """
    return MACHINES.get(name, Machine(name))


def is_loose(protocol: Protocol) -> bool:
    """Whether a protocol's tolerance may let 16-bit arithmetic pass, whose inputs are off by up to a two-thousandth.

    >>> from kernelgym_env.evaluation.protocols import get_protocol
    >>> [is_loose(get_protocol(name)) for name in ("strict", "kernelbench", "makora", "kernelgym")]
    [False, False, True, True]
    """
    rule = protocol.allclose
    return rule is not None and max(rule.atol, rule.rtol) >= _LOOSE


def fastest_format(dtype: str, *, loose: bool = False) -> str:
    """The number format whose rate bounds the operations of a task.

    Products of float32 may be made of TF32 ones, also where the result has float32's precision, so its bound is
    TF32's rate. A loose tolerance lets 16-bit arithmetic pass too.

    Args:
        dtype: torch's name of the dtype, e.g. ``"float32"``.
        loose: see `is_loose`.

    >>> fastest_format("float32"), fastest_format("float32", loose=True), fastest_format("float64")
    ('tf32', 'fp16', 'fp64')
    """
    found = _FORMAT_OF.get(dtype, _DEFAULT_FORMAT)
    return "fp16" if loose and found in ("fp64", "tf32") else found


def floor_us(work: Work, device: Machine, *, loose: bool = False) -> float:
    """Least time of a call in microseconds: max(bytes / bandwidth, operations / rate); NaN for an unknown device.

    Args:
        work: what is to be done.
        device: the rates.
        loose: see `is_loose`.

    >>> floor_us(Work(flops=0, bytes=4.8e6), machine("NVIDIA H200"))
    1.0
    """
    if not device.known:
        return math.nan
    return max(_seconds(work, device, loose)) * 1e6


def bound_of(work: Work, device: Machine, *, loose: bool = False) -> str:
    """What a floor comes from: ``memory`` or ``compute``; ``""`` for an unknown device.

    Args:
        work: what is to be done.
        device: the rates.
        loose: see `is_loose`.

    >>> bound_of(Work(flops=2 * 4096**3, bytes=3 * 4 * 4096**2), machine("NVIDIA H200"))
    'compute'
    """
    if not device.known:
        return ""
    memory, compute = _seconds(work, device, loose)
    return "memory" if memory >= compute else "compute"


def _seconds(work: Work, device: Machine, loose: bool) -> tuple[float, float]:
    """Least times of the bytes and of the operations."""
    rate = device.flops_per_s.get(fastest_format(work.dtype, loose=loose), math.inf)
    return work.bytes / device.bytes_per_s, work.flops / rate


def floor_fraction(floor: float, time_us: float) -> float:
    """Share of the peak that a time reaches: floor / time, above 1 for one below the floor, NaN where one is unknown.

    Args:
        floor: of the task, in microseconds.
        time_us: of a call, in microseconds.

    >>> floor_fraction(10.0, 40.0)
    0.25
    """
    return floor / time_us if time_us > 0 else math.nan


def count_work(call: Callable[..., Any], arguments: Sequence[Any], *, known: Mapping[str, Any] | None = None) -> Work:
    """Count the work of a reference in one call.

    Operations are those that `torch.utils.flop_counter` knows: products of matrices, convolutions, attention; the
    others are few beside the bytes. Of a tensor that is looked up in (an embedding's table, an indexed tensor) as many
    bytes are read as come out of it, of a slice those of the slice, of a parameter that is not used none.

    Args:
        call: the model; called once, without gradients. It may overwrite the arguments.
        arguments: of the call; a pytree of tensors and other values.
        known: ``flops``, ``bytes`` or ``dtype`` that take the place of what was counted, see `Work.replace`.

    Raises:
        UnknownNameError: for another name in `known`.
        InvalidOptionError: for a number in `known` that is negative or not finite.
    """
    import torch
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    from kernelgym_env.evaluation._touched import Touched

    given = [leaf for leaf in tree_leaves(list(arguments)) if isinstance(leaf, torch.Tensor)]
    if isinstance(call, torch.nn.Module):
        given += [*call.parameters(), *call.buffers()]
    counter, touched = FlopCounterMode(display=False), Touched(given)
    with torch.no_grad(), counter, touched:
        result = call(*arguments)
    made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    counted = Work(
        float(counter.get_total_flops()),
        float(touched.read_bytes + touched.written_bytes(made)),
        _narrowest(given + made),
    )
    return counted.replace(known)


def _narrowest(tensors: Sequence[torch.Tensor]) -> str:
    """Name of the floating dtype with the fewest bytes, float32 where there is none."""
    floating = [tensor.dtype for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()]
    return str(min(floating, key=lambda dtype: dtype.itemsize)).removeprefix("torch.") if floating else "float32"
