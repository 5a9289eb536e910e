"""Where does `strict` draw the line between another order of rounding and lower precision?

For operators of each family this script computes one output in many ways: honest ones (other summation orders, fused
steps, other formulas for the same function) and ones of lower precision (TF32, bfloat16, float16, float8). Each is
judged exactly as a submission's output is, against the reference's float32 (or half-precision) output and the float64
oracle. What is written down is the error ratio: greatest error / allowed error, so that 1 is the line.

    python benchmarks/calibration.py            # a few minutes on two CPU cores; writes the JSON and the page's tables
    python benchmarks/calibration.py --quick    # one seed; prints only

Lower precision is emulated on the CPU by rounding, so that no GPU is needed: TF32 rounds operands to ten bits of
mantissa and sums in float32; half-precision maths rounds operands, or every intermediate value, to that type.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pages import BEGIN, END, write_tables

import kernelgym_env
from kernelgym_env.evaluation.correctness import Expected, compare
from kernelgym_env.evaluation.protocols import Protocol, get_protocol

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "calibration_cpu.json"
PAGE = ROOT / "docs" / "calibration.md"
SEEDS = (0, 1, 2, 3, 4)
STRICT = get_protocol("strict")
CONSTANTS = ("error_factor", "error_floor", "error_floor_half")
CHOICES = (
    STRICT,
    *(
        STRICT.replace(error_factor=factor, error_floor=floor, error_floor_half=half)
        for factor, floor, half in (
            (8.0, 512.0, 4.0),
            (8.0, 128.0, 4.0),
            (8.0, 64.0, 4.0),
            (4.0, 256.0, 4.0),
            (8.0, 256.0, 2.0),
            (4.0, 256.0, 2.0),
        )
    ),
)
"""The constants of strict and others, all applied to the same outputs."""

Tensor = torch.Tensor
Function = Callable[..., Tensor]


class Variant(NamedTuple):
    """One way to compute an output.

    Attributes:
        name: what it does.
        compute: from the inputs to the output.
        expected: ``accept``, ``reject``, or ``-`` where the aim says neither.
    """

    name: str
    compute: Function
    expected: str


class Case(NamedTuple):
    """One operator on one kind of data.

    Attributes:
        family: as the page groups them.
        name: operator, size and data.
        dtype: of inputs and output.
        inputs: from a generator to the inputs.
        reference: what eager PyTorch does; in float64 it is the oracle.
        variants: the ways to compute it.
    """

    family: str
    name: str
    dtype: torch.dtype
    inputs: Callable[[torch.Generator], list[Tensor]]
    reference: Function
    variants: list[Variant]


# --- roundings


def tf32(x: Tensor) -> Tensor:
    """Rounded to TF32, ten bits of mantissa, to nearest even."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def tf32_cut(x: Tensor) -> Tensor:
    """Cut off to TF32, as hardware does with operands that were not rounded before."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def rounding(dtype: torch.dtype) -> Function:
    """Rounding to a dtype and back."""
    return lambda x: x.to(dtype).to(x.dtype)


ROUNDINGS: dict[str, Function] = {
    "TF32 operands": tf32,
    "TF32 operands, cut off": tf32_cut,
    "bfloat16 operands": rounding(torch.bfloat16),
    "float16 operands": rounding(torch.float16),
}


def lower(function: Function, names: tuple[str, ...] = tuple(ROUNDINGS), expected: str = "reject") -> list[Variant]:
    """`function` on operands that are rounded first."""
    return [
        Variant(name, lambda *xs, r=ROUNDINGS[name]: function(*[r(x) for x in xs]), expected)  # type: ignore[misc]
        for name in names
    ]


def maths(function: Function, expected: str = "reject") -> list[Variant]:
    """`function` with every step in half precision."""
    return [
        Variant(f"{name} maths", lambda *xs, d=dtype: function(*[x.to(d) for x in xs]).to(xs[0].dtype), expected)  # type: ignore[misc]
        for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16))
    ]


# --- summation orders, over the last dimension


def sequential(x: Tensor) -> Tensor:
    """One running total in the dtype of `x`. NumPy's accumulate does not widen, torch's cumsum on a CPU does."""
    return torch.from_numpy(np.add.accumulate(x.numpy(), axis=-1)[..., -1].copy())


def pairwise(x: Tensor) -> Tensor:
    """A binary tree."""
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = F.pad(x, (0, 1))
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


def lanes(count: int) -> Function:
    """`count` running totals over strided terms, then a tree: what a block of threads does."""

    def run(x: Tensor) -> Tensor:
        x = F.pad(x, (0, -x.shape[-1] % count))
        return pairwise(sequential(x.unflatten(-1, (-1, count)).transpose(-1, -2).contiguous()))

    return run


def chunks(length: int) -> Function:
    """A running total over each `length` neighbours, then one over these: split reductions, atomics."""

    def run(x: Tensor) -> Tensor:
        x = F.pad(x, (0, -x.shape[-1] % length))
        return sequential(sequential(x.unflatten(-1, (-1, length)).contiguous()))

    return run


def kahan(x: Tensor) -> Tensor:
    """Compensated summation."""
    total, lost = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for term in x.unbind(-1):
        term = term - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return total


ORDERS: dict[str, Function] = {
    "sequential": sequential,
    "sequential, from the end": lambda x: sequential(x.flip(-1)),
    "pairwise": pairwise,
    "256 lanes": lanes(256),
    "chunks of 128": chunks(128),
    "Kahan": kahan,
}


def orders(function: Callable[[Function], Function], names: tuple[str, ...] = tuple(ORDERS)) -> list[Variant]:
    """An operator with its sum in each order."""
    return [Variant(name, function(ORDERS[name]), "accept") for name in names]


def half_sums(function: Callable[[Function], Function]) -> list[Variant]:
    """An operator whose running totals are rounded to half precision after each step."""
    return [
        Variant(f"{name} running total", function(lambda x, d=dtype: sequential_in(x, d)), "reject")  # type: ignore[misc]
        for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16))
    ]


def sequential_in(x: Tensor, dtype: torch.dtype) -> Tensor:
    """32 running totals in `dtype`, added in float32: tensor cores that sum in half precision over a tile."""
    total = torch.zeros(*x.shape[:-1], 32, dtype=dtype)
    for start in range(0, x.shape[-1], 32):
        part = x[..., start : start + 32].to(dtype)
        total[..., : part.shape[-1]] += part
    return total.to(x.dtype).sum(-1)


# --- products


def outer(a: Tensor, b: Tensor) -> Tensor:
    """a @ b with one running total per element, product and sum rounded on their own."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[k]
    return total


def fma(a: Tensor, b: Tensor) -> Tensor:
    """The same with fused multiply-add: a product of two float32 is exact in float64."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    wide_a, wide_b = a.double(), b.double()
    for k in range(a.shape[1]):
        total = (total.double() + wide_a[:, k, None] * wide_b[k]).to(a.dtype)
    return total


def split_k(parts: int) -> Function:
    """`parts` products over a share of K each, added one after the other."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
        for left, right in zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True):
            total += left @ right
        return total

    return run


def tree_product(a: Tensor, b: Tensor) -> Tensor:
    """A binary tree over K, in slices of rows that fit the memory."""
    return torch.cat([pairwise(row[None, :, None].mul(b).movedim(1, -1).contiguous()) for row in a])


def kahan_product(a: Tensor, b: Tensor) -> Tensor:
    """Compensated summation over K."""
    total, lost = (torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype) for _ in range(2))
    for k in range(a.shape[1]):
        term = a[:, k, None] * b[k] - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return total


def in_parts(r: Function, terms: int) -> Function:
    """Each operand as a sum of two or three rounded parts; the products of the greater ones are added."""

    def split(x: Tensor) -> list[Tensor]:
        parts = []
        for _ in range(terms):
            parts.append(r(x))
            x = x - parts[-1]
        return parts

    def run(a: Tensor, b: Tensor) -> Tensor:
        left, right = split(a), split(b)
        pairs = [(i, j) for i in range(terms) for j in range(terms) if i + j < terms]
        return sum(left[i] @ right[j] for i, j in sorted(pairs, key=lambda p: -sum(p)))  # type: ignore[return-value]

    return run


def half_total(dtype: torch.dtype) -> Function:
    """Operands and running totals in `dtype`, in tiles of 32 over K that are added in float32."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        total = torch.zeros(a.shape[0], b.shape[1])
        for left, right in zip(a.split(32, 1), b.split(32, 0), strict=True):
            total += outer(left.to(dtype), right.to(dtype)).float()
        return total.to(a.dtype)

    return run


def products(*, slow: bool = True) -> list[Variant]:
    """Ways to multiply float32 matrices."""
    exact = [
        Variant("sequential", outer, "accept"),
        Variant("sequential with FMA", fma, "accept"),
        Variant("split K, 32 parts", split_k(32), "accept"),
        Variant("float64 inside", lambda a, b: (a.double() @ b.double()).to(a.dtype), "accept"),
        Variant("three TF32 products", in_parts(tf32, 2), "accept"),
        Variant("six bfloat16 products", in_parts(rounding(torch.bfloat16), 3), "accept"),
        Variant("three bfloat16 products", in_parts(rounding(torch.bfloat16), 2), "-"),
    ]
    if slow:
        exact += [Variant("pairwise", tree_product, "accept"), Variant("Kahan", kahan_product, "accept")]
    low = lower(torch.matmul)
    low.append(Variant("float16 running totals", half_total(torch.float16), "reject"))
    return exact + low


# --- norms, softmax, elementwise


def layer_norm(sum_of: Function) -> Function:
    """Two passes."""

    def run(x: Tensor) -> Tensor:
        mean = (sum_of(x) / x.shape[-1])[:, None]
        variance = (sum_of((x - mean) ** 2) / x.shape[-1])[:, None]
        return (x - mean) * torch.rsqrt(variance + 1e-5)

    return run


def one_pass(x: Tensor) -> Tensor:
    """Variance as mean of squares less square of mean, the fast way that loses digits."""
    mean = (lanes(256)(x) / x.shape[-1])[:, None]
    variance = (lanes(256)(x * x) / x.shape[-1])[:, None] - mean * mean
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def welford(x: Tensor) -> Tensor:
    """Running mean and variance."""
    mean, square = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for count, term in enumerate(x.unbind(-1), start=1):
        delta = term - mean
        mean = mean + delta / count
        square = square + delta * (term - mean)
    return (x - mean[:, None]) * torch.rsqrt(square / x.shape[-1] + 1e-5)[:, None]


def plain_norm(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)


LOG2E = 1.4426950408889634


def softmax(sum_of: Function) -> Function:
    """Greatest value first, then one sum."""

    def run(x: Tensor) -> Tensor:
        shifted = torch.exp(x - x.amax(-1, keepdim=True))
        return shifted / sum_of(shifted)[:, None]

    return run


def softmax_exp2(x: Tensor) -> Tensor:
    """By powers of two, scaled before the greatest value is taken away, times a reciprocal."""
    scaled = x * LOG2E
    shifted = torch.exp2(scaled - scaled.amax(-1, keepdim=True))
    return shifted * lanes(256)(shifted).reciprocal()[:, None]


def online(x: Tensor) -> tuple[Tensor, Tensor]:
    """Greatest value and sum of exponentials in one pass over blocks of 128."""
    top, total = torch.full_like(x[:, 0], -torch.inf), torch.zeros_like(x[:, 0])
    for block in x.split(128, -1):
        new = torch.maximum(top, block.amax(-1))
        total = total * torch.exp(top - new) + torch.exp(block - new[:, None]).sum(-1)
        top = new
    return top, total


def softmax_online(x: Tensor) -> Tensor:
    top, total = online(x)
    return torch.exp(x - top[:, None]) / total[:, None]


def logsumexp_online(x: Tensor) -> Tensor:
    top, total = online(x)
    return top + torch.log(total)


def logsumexp(sum_of: Function) -> Function:
    def run(x: Tensor) -> Tensor:
        top = x.amax(-1)
        return top + torch.log(sum_of(torch.exp(x - top[:, None])))

    return run


def plain_softmax(x: Tensor) -> Tensor:
    shifted = torch.exp(x - x.amax(-1, keepdim=True))
    return shifted / shifted.sum(-1, keepdim=True)


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form, step by step."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def gelu_sigmoid(x: Tensor) -> Tensor:
    """The same function by one exponential."""
    return x / (1 + torch.exp(-2 * 0.7978845608028654 * (x + 0.044715 * (x * x * x))))


def gelu_approx(x: Tensor) -> Tensor:
    """With a tanh that is good to 2^-11, as the instruction tanh.approx.f32 is."""
    inner = torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    return 0.5 * x * (1 + rounding(torch.float16)(inner))


def tanh_exp(x: Tensor) -> Tensor:
    """tanh by one exponential; cancels near zero."""
    return 1 - 2 / (1 + torch.exp(2 * x))


def chain(tanh: Function) -> Function:
    return lambda x: torch.exp(-(tanh(x * 1.5) ** 2)) * tanh(x) + 0.1 * x


def exp2(x: Tensor) -> Tensor:
    return torch.exp2(x * LOG2E)


# --- scans, convolutions


def blocked_scan(length: int) -> Function:
    """Scans of blocks, then a scan of their totals."""

    def run(x: Tensor) -> Tensor:
        parts = torch.from_numpy(np.add.accumulate(x.unflatten(-1, (-1, length)).numpy(), axis=-1))
        totals = torch.from_numpy(np.add.accumulate(parts[..., -1].numpy(), axis=-1))
        return (parts + F.pad(totals[..., :-1], (1, 0))[..., None]).flatten(-2)

    return run


def doubling_scan(x: Tensor) -> Tensor:
    """log2(n) steps, each adds the value that lies twice as far."""
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([x[..., :step], x[..., step:] + x[..., :-step]], -1)
        step *= 2
    return x


def scan_in(dtype: torch.dtype) -> Function:
    def run(x: Tensor) -> Tensor:
        total, found = torch.zeros_like(x[:, 0]).to(dtype), []
        for term in x.to(dtype).unbind(-1):
            total = total + term
            found.append(total)
        return torch.stack(found, -1).to(x.dtype)

    return run


def conv(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1)


def by_columns(product: Function) -> Function:
    """A convolution as a product of matrices."""

    def run(x: Tensor, w: Tensor) -> Tensor:
        columns = F.unfold(x, 3, padding=1)[0]
        return product(w.flatten(1), columns).unflatten(-1, x.shape[-2:])[None]

    return run


# --- half-precision tasks


def wide_inside(function: Function) -> Function:
    """All steps in float32, one rounding at the end."""
    return lambda *xs: function(*[x.float() for x in xs]).to(xs[0].dtype)


def float8(x: Tensor) -> Tensor:
    return x.to(torch.float8_e4m3fn).to(x.dtype)


def half_cases(dtype: torch.dtype) -> Iterator[Case]:
    name = str(dtype).removeprefix("torch.")
    family = f"{name} tasks"

    def normal(*shape: int) -> Callable[[torch.Generator], list[Tensor]]:
        return lambda g: [torch.randn(shape, generator=g).to(dtype)]

    def matrices(k: int) -> Callable[[torch.Generator], list[Tensor]]:
        return lambda g: [
            torch.randn(64, k, generator=g).to(dtype),
            (torch.randn(k, 64, generator=g) / k**0.5).to(dtype),
        ]

    def low(function: Function) -> Variant:
        return Variant("float8 operands", lambda *xs: function(*[float8(x) for x in xs]), "reject")

    for k in (1024, 16384):
        yield Case(
            family,
            f"matrix product, K = {k}",
            dtype,
            matrices(k),
            torch.matmul,
            [
                Variant("float32 inside, sequential", wide_inside(outer), "accept"),
                Variant("split K, 8 partial sums in the task's dtype", split_k(8), "accept"),
                Variant("running total in the task's dtype, tiles of 32", half_total(dtype), "-"),
                Variant("running total in the task's dtype", outer, "-"),
                low(torch.matmul),
            ],
        )
    for title, inputs, function in (
        ("GELU, tanh form", normal(256, 1024), gelu),
        ("softmax, 4096 columns", normal(32, 4096), plain_softmax),
        ("layer norm, 4096 wide", normal(32, 4096), plain_norm),
    ):
        yield Case(
            family,
            title,
            dtype,
            inputs,
            function,
            [
                Variant("float32 inside", wide_inside(function), "accept"),
                Variant("every step in the task's dtype", function, "accept"),
                low(function),
            ],
        )
    yield Case(
        family,
        "row sum, 16384 terms",
        dtype,
        normal(64, 16384),
        lambda x: x.sum(-1),
        [
            Variant("float32 inside, sequential", wide_inside(sequential), "accept"),
            Variant("32 running totals in the task's dtype", lambda x: sequential_in(x, dtype), "-"),
            low(lambda x: x.sum(-1)),
        ],
    )


# --- all cases

DATA: dict[str, Callable[[tuple[int, ...], torch.Generator], Tensor]] = {
    "both signs": lambda shape, g: torch.randn(shape, generator=g),
    "positive": lambda shape, g: torch.rand(shape, generator=g),
    "heavy-tailed positive": lambda shape, g: torch.exp(2 * torch.randn(shape, generator=g)),
}
"""Kinds of data. Of many positive terms of one size the roundings average out, of heavy-tailed ones they do not."""


def cases() -> Iterator[Case]:
    """Every case, family by family."""
    single = torch.float32

    def normal(*shape: int, scale: float = 1.0, shift: float = 0.0) -> Callable[[torch.Generator], list[Tensor]]:
        return lambda g: [torch.randn(shape, generator=g) * scale + shift]

    def uniform(*shape: int) -> Callable[[torch.Generator], list[Tensor]]:
        return lambda g: [torch.rand(shape, generator=g)]

    yield Case(
        "elementwise",
        "exp",
        single,
        normal(256, 1024, scale=2.0),
        torch.exp,
        [
            Variant("by powers of two", exp2, "accept"),
            Variant("NumPy's exp", lambda x: torch.from_numpy(np.exp(x.numpy())), "accept"),
            *maths(torch.exp),
        ],
    )
    yield Case(
        "elementwise",
        "GELU, tanh form",
        single,
        normal(256, 1024),
        gelu,
        [
            Variant("fused kernel of torch", lambda x: F.gelu(x, approximate="tanh"), "accept"),
            Variant("by one exponential", gelu_sigmoid, "accept"),
            Variant("tanh good to 2^-11", gelu_approx, "reject"),
            Variant("GELU by erf instead", F.gelu, "reject"),
            *maths(gelu),
        ],
    )
    yield Case(
        "elementwise",
        "chain of tanh and exp",
        single,
        normal(256, 1024),
        chain(torch.tanh),
        [
            Variant("tanh by one exponential", chain(tanh_exp), "accept"),
            *maths(chain(torch.tanh)),
        ],
    )

    for title, inputs in (
        ("row sum, 16384 terms, both signs", normal(64, 16384)),
        ("row sum, 16384 terms, positive", uniform(64, 16384)),
        ("row sum, 256 terms, positive", uniform(256, 256)),
        ("row sum, 16384 terms, heavy-tailed positive", lambda g: [DATA["heavy-tailed positive"]((64, 16384), g)]),
    ):
        yield Case(
            "sums",
            title,
            single,
            inputs,
            lambda x: x.sum(-1),
            [
                *orders(lambda s: s),
                *lower(lambda x: x.sum(-1), ("TF32 operands", "bfloat16 operands", "float16 operands")),
                *half_sums(lambda s: s),
            ],
        )
    for terms in (1 << 17, 1 << 20):
        yield Case(
            "sums",
            f"row sum, {terms} terms, positive",
            single,
            uniform(8, terms),
            lambda x: x.sum(-1),
            [
                Variant("sequential", sequential, "-"),
                *orders(lambda s: s, ("pairwise", "256 lanes", "chunks of 128")),
            ],
        )
    yield Case(
        "sums",
        "dot product, 262144 terms, both signs",
        single,
        lambda g: [torch.randn(8, 1 << 18, generator=g), torch.randn(8, 1 << 18, generator=g)],
        lambda x, y: (x * y).sum(-1),
        [
            Variant("sequential", lambda x, y: sequential(x * y), "-"),
            Variant("256 lanes", lambda x, y: lanes(256)(x * y), "accept"),
            Variant("pairwise", lambda x, y: pairwise(x * y), "accept"),
            *lower(lambda x, y: (x * y).sum(-1)),
        ],
    )

    for title, shift in (("4096 wide", 0.0), ("4096 wide, mean 10 times the deviation", 10.0)):
        yield Case(
            "norms",
            f"layer norm, {title}",
            single,
            normal(32, 4096, shift=shift),
            plain_norm,
            [
                *orders(layer_norm, ("sequential", "pairwise", "256 lanes", "Kahan")),
                Variant("Welford", welford, "accept"),
                Variant("one pass, mean of squares", one_pass, "accept" if not shift else "-"),
                *lower(plain_norm, ("TF32 operands", "bfloat16 operands", "float16 operands")),
                *maths(plain_norm),
            ],
        )

    yield Case(
        "softmax",
        "softmax, 4096 columns",
        single,
        normal(32, 4096, scale=3.0),
        plain_softmax,
        [
            Variant("torch.softmax", lambda x: torch.softmax(x, -1), "accept"),
            *orders(softmax, ("sequential", "pairwise", "256 lanes", "Kahan")),
            Variant("powers of two", softmax_exp2, "accept"),
            Variant("online", softmax_online, "accept"),
            *lower(plain_softmax, ("bfloat16 operands", "float16 operands")),
            *maths(plain_softmax),
        ],
    )
    yield Case(
        "softmax",
        "logsumexp, 16384 columns",
        single,
        normal(32, 16384, scale=3.0),
        lambda x: torch.logsumexp(x, -1),
        [
            *orders(logsumexp, ("sequential", "pairwise", "256 lanes")),
            Variant("online", logsumexp_online, "accept"),
            *lower(lambda x: torch.logsumexp(x, -1), ("bfloat16 operands", "float16 operands")),
            *maths(lambda x: torch.logsumexp(x, -1)),
        ],
    )

    for k in (64, 1024, 16384):
        for data, draw in DATA.items():
            yield Case(
                "products",
                f"matrix product, K = {k}, {data}",
                single,
                lambda g, k=k, draw=draw: [draw((64, k), g), draw((k, 64), g)],  # type: ignore[misc]
                torch.matmul,
                products(slow=data != "heavy-tailed positive"),
            )
    yield Case(
        "products",
        "convolution 3x3, 64 channels",
        single,
        lambda g: [torch.randn(1, 64, 24, 24, generator=g), torch.randn(64, 64, 3, 3, generator=g) / 24],
        conv,
        [
            *[
                Variant(v.name, by_columns(v.compute), v.expected)
                for v in products()
                if v.name not in ("Kahan", "pairwise")
            ],
        ],
    )

    for data, draw in DATA.items():
        yield Case(
            "scans",
            f"cumulative sum, 8192 terms, {data}",
            single,
            lambda g, draw=draw: [draw((32, 8192), g)],  # type: ignore[misc]
            lambda x: torch.cumsum(x, -1),
            [
                Variant("sequential", lambda x: torch.from_numpy(np.add.accumulate(x.numpy(), axis=-1)), "accept"),
                Variant("blocks of 128", blocked_scan(128), "accept"),
                Variant("doubling", doubling_scan, "accept"),
                *lower(lambda x: torch.cumsum(x, -1), ("TF32 operands", "bfloat16 operands", "float16 operands")),
                Variant("bfloat16 running total", scan_in(torch.bfloat16), "reject"),
                Variant("float16 running total", scan_in(torch.float16), "reject"),
            ],
        )

    for dtype in (torch.float16, torch.bfloat16):
        yield from half_cases(dtype)


# --- measuring and writing


def measure(
    seeds: tuple[int, ...], protocols: tuple[Protocol, ...] = (STRICT,), families: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """One row per variant and protocol: its error ratios over the seeds, and the verdicts.

    Args:
        seeds: of the inputs.
        protocols: whose constants are applied to the same outputs.
        families: those to measure, all if empty.
    """
    rows = []
    for case in cases():
        if families and case.family not in families:
            continue
        found: dict[tuple[str, int], list[float]] = {}
        for seed in seeds:
            inputs = case.inputs(torch.Generator().manual_seed(seed))
            oracle = case.reference(*[x.double() for x in inputs])
            expected = Expected.of("output", case.reference(*inputs), oracle)
            for variant in case.variants:
                output = variant.compute(*[x.clone() for x in inputs]).contiguous()
                assert output.dtype == case.dtype, (case.name, variant.name)
                for index, protocol in enumerate(protocols):
                    ratio = compare(output, expected, protocol).ratio
                    found.setdefault((variant.name, index), []).append(ratio)
        for variant in case.variants:
            for index, protocol in enumerate(protocols):
                ratios = found[variant.name, index]
                verdicts = {"accept" if ratio <= 1 else "reject" for ratio in ratios}
                rows.append(
                    {
                        "family": case.family,
                        "case": case.name,
                        "dtype": str(case.dtype).removeprefix("torch."),
                        "variant": variant.name,
                        "constants": {name: getattr(protocol, name) for name in CONSTANTS},
                        "expected": variant.expected,
                        "verdict": verdicts.pop() if len(verdicts) == 1 else "mixed",
                        "ratio_min": float(f"{min(ratios):.4g}"),
                        "ratio_median": float(f"{statistics.median(ratios):.4g}"),
                        "ratio_max": float(f"{max(ratios):.4g}"),
                    }
                )
    return rows


def sweep(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each choice of constants does: the honest variant nearest to the line, and what is not as aimed."""
    found = []
    for protocol in CHOICES:
        constants = {name: getattr(protocol, name) for name in CONSTANTS}
        mine = [row for row in rows if row["constants"] == constants]
        entry: dict[str, Any] = {"constants": constants}
        for kind, half in (("float32", False), ("half", True)):
            group = [row for row in mine if (row["dtype"] != "float32") == half]
            honest = [row for row in group if row["expected"] == "accept"]
            low = [row for row in group if row["expected"] == "reject"]
            entry[kind] = {
                "honest": len(honest),
                "honest_not_accepted": sum(map(is_surprise, honest)),
                "honest_greatest_ratio": max(row["ratio_max"] for row in honest),
                "low": len(low),
                "low_not_rejected": sum(map(is_surprise, low)),
            }
        found.append(entry)
    return found


def is_surprise(row: dict[str, Any]) -> bool:
    """Whether a verdict is not the expected one."""
    return row["expected"] != "-" and row["verdict"] != row["expected"]


def tables(rows: list[dict[str, Any]]) -> str:
    """The page's tables, one per family; the line is at ratio 1."""
    lines: list[str] = []
    for family in dict.fromkeys(row["family"] for row in rows):
        lines += [f"### {family[0].upper()}{family[1:]}", ""]
        lines += ["| operator | computed by | error ratio: median (least to greatest) | verdict | aim |"]
        lines += ["|---|---|---|---|---|"]
        for row in (row for row in rows if row["family"] == family):
            spread = f"{row['ratio_median']:.2g} ({row['ratio_min']:.2g} to {row['ratio_max']:.2g})"
            verdict = f"**{row['verdict']}**" if is_surprise(row) else row["verdict"]
            lines.append(f"| {row['case']} | {row['variant']} | {spread} | {verdict} | {row['expected']} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def sweep_table(found: list[dict[str, Any]]) -> str:
    """The page's table of other constants."""
    lines = [
        "| factor, floor, half floor | float32: honest not accepted | nearest honest | lower precision not rejected "
        "| half: honest not accepted | nearest honest | lower precision not rejected |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in found:
        cells = [", ".join(f"{entry['constants'][name]:g}" for name in CONSTANTS)]
        for kind in ("float32", "half"):
            group = entry[kind]
            cells += [
                f"{group['honest_not_accepted']} of {group['honest']}",
                f"{group['honest_greatest_ratio']:.2g}",
                f"{group['low_not_rejected']} of {group['low']}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page_part(rows: list[dict[str, Any]], other: list[dict[str, Any]]) -> str:
    """What the page holds between its two marks."""
    return (
        f"{BEGIN}\n\n## What other constants would do\n\n{sweep_table(other)}\n"
        f"## Every variant\n\n{tables(rows)}\n{END}"
    )


def report(rows: list[dict[str, Any]], other: list[dict[str, Any]], seeds: tuple[int, ...]) -> dict[str, Any]:
    """What the JSON file holds."""
    return {
        "what": "error ratios under the protocol strict; at most 1 is accepted",
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "versions": {
            "kernelgym_env": kernelgym_env.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "protocol": {name: getattr(STRICT, name) for name in ("name", *CONSTANTS)},
        "seeds": list(seeds),
        "rows": [
            {name: "inf" if value == math.inf else value for name, value in row.items() if name != "constants"}
            for row in rows
        ],
        "other_constants": other,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed; writes nothing")
    options = parser.parse_args(arguments)
    seeds = SEEDS[:1] if options.quick else SEEDS
    start = time.perf_counter()
    every = measure(seeds, (STRICT,) if options.quick else CHOICES)
    rows = [row for row in every if row["constants"] == {name: getattr(STRICT, name) for name in CONSTANTS}]
    for row in rows:
        mark = "  <-- not as aimed" if is_surprise(row) else ""
        print(
            f"{row['case'][:44]:44} {row['variant'][:44]:44} {row['ratio_min']:9.3g} {row['ratio_max']:9.3g} "
            f"{row['verdict']:7} {row['expected']:7}{mark}"
        )
    print(f"{len(rows)} variants, {sum(map(is_surprise, rows))} not as aimed, {time.perf_counter() - start:.0f} s")
    if not options.quick:
        other = sweep(every)
        data = json.dumps(report(rows, other, seeds), indent=1, allow_nan=False)
        RESULTS.write_text(data + "\n", encoding="utf-8")
        write_tables(PAGE, page_part(rows, other))
    return 0


if __name__ == "__main__":
    sys.exit(main())
