"""Is this output right? Values against a float64 oracle, judged on the scale of the reference's own error.

An fp32 kernel that sums in another order differs from the reference by rounding, and so does the reference from the
exact answer. So the allowed error per output tensor is

    error_factor · max|reference − oracle|  +  floor · eps(dtype) · (RMS(oracle) + |oracle|)

with both constants in the protocol (``docs/calibration.md`` says what passes). A protocol with `allclose` decides by a
published tolerance instead, against the reference's own output; the ratio of a verdict is that of the rule above in
either case. Integers and booleans must be equal. NaN and infinity must stand where the reference has them.

- `Expected` -- what the judge knows about one output tensor.
- `Verdict` -- the outcome of a comparison.
- `compare`, `compare_all` -- outputs against their expectations.
- `floor_of` -- the part of the allowed error that does not hang on the reference's own.
- `slope_of` -- how the allowed error grows with the value.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from kernelgym_env.evaluation.protocols import Protocol

__all__ = ["Expected", "Verdict", "compare", "compare_all", "floor_of", "slope_of"]

_CHUNK = 1 << 26
_HALF_EPS = 1e-4
_LOW_PRECISION = 1e-2
"""Errors whose RMS is up to this share of the output's can come from half-precision maths: bfloat16 rounds by at most
2^-9, and a chain of operations or an exponential makes a few times that of it."""
_WIDESPREAD = 0.01
"""Rounding is off everywhere; a rounded output has at least this share of wrong elements."""


@dataclass(frozen=True)
class Expected:
    """What the judge knows about one output.

    Attributes:
        path: readable place in the output, e.g. ``output[0]``.
        reference: the reference's own output, contiguous.
        oracle: the same in float64, or None where the reference cannot be cast.
        reference_error: max|reference − oracle| over finite places, 0 without an oracle.
        rms: root mean square of the finite expected values.
    """

    path: str
    reference: torch.Tensor
    oracle: torch.Tensor | None
    reference_error: float
    rms: float

    @classmethod
    def of(cls, path: str, reference: torch.Tensor, oracle: torch.Tensor | None) -> Expected:
        """Derive the scales from the reference's output and the oracle's."""
        reference = reference.detach().contiguous()
        if not reference.is_floating_point() and not reference.is_complex():
            return cls(path, reference, None, 0.0, 0.0)
        exact = reference if oracle is None else oracle.detach().contiguous()
        error, square, count = 0.0, 0.0, 0
        for ref, good in zip(_chunks(reference), _chunks(exact), strict=True):
            good = _wide(good)
            finite = torch.isfinite(good) & torch.isfinite(_wide(ref))
            if oracle is not None:
                error = max(error, float(torch.where(finite, (_wide(ref) - good).abs(), 0).max()))
            square += float(torch.where(finite, good.abs().square(), 0).sum())
            count += int(finite.sum())
        return cls(path, reference, None if oracle is None else exact, error, (square / max(1, count)) ** 0.5)

    def sample(self, step: int) -> Expected:
        """What is expected of every `step`-th element; the scales stay those of all."""
        reference = self.reference.reshape(-1)[::step]
        oracle = None if self.oracle is None else self.oracle.reshape(-1)[::step]
        return dataclasses.replace(self, reference=reference, oracle=oracle)


@dataclass(frozen=True)
class Verdict:
    """Outcome of a comparison.

    Attributes:
        ok: whether every output is within what is allowed.
        ratio: greatest error / allowed error, by the rule with the oracle whatever the protocol decides by; infinite
            for a difference that no tolerance covers.
        message: a sentence for the policy, ``""`` if right. Gives shares and relative sizes, never values.
    """

    ok: bool
    ratio: float
    message: str = ""


def _chunks(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tensor.reshape(-1).split(_CHUNK) if tensor.numel() else ()


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def floor_of(dtype: torch.dtype, protocol: Protocol) -> float:
    """``floor · eps(dtype)``: the allowed error beside the reference's own, on the scale of the output."""
    eps = torch.finfo(dtype).eps
    return (protocol.error_floor_half if eps > _HALF_EPS else protocol.error_floor) * eps


def slope_of(dtype: torch.dtype, protocol: Protocol) -> float:
    """How much more error is allowed for a value that is greater by one; 0 for integers and booleans."""
    if not dtype.is_floating_point and not dtype.is_complex:
        return 0.0
    if protocol.allclose:
        return protocol.allclose.pair(half=torch.finfo(dtype).eps > _HALF_EPS)[1]
    return floor_of(dtype, protocol)


def compare(output: torch.Tensor, expected: Expected, protocol: Protocol) -> Verdict:
    """Compare one output with its expectation.

    Args:
        output: tensor of the reference's shape and dtype.
        expected: see `Expected`.
        protocol: gives `allclose`, or else `error_factor` and the floors.
    """
    reference = expected.reference
    if not reference.is_floating_point() and not reference.is_complex():
        wrong = int((output != reference).sum())
        if not wrong:
            return Verdict(True, 0.0)
        share = wrong / max(1, reference.numel())
        return Verdict(False, float("inf"), f"{expected.path}: {share:.2%} of the {_name(reference)} elements differ.")
    half = torch.finfo(reference.dtype).eps > _HALF_EPS
    floor = floor_of(reference.dtype, protocol)
    atol, rtol = protocol.allclose.pair(half=half) if protocol.allclose else (0.0, 0.0)
    exact = reference if expected.oracle is None else expected.oracle
    worst, beyond, wrong, greatest, square, special = 0.0, 0, 0, 0.0, 0.0, 0
    for got, ref, good in zip(_chunks(output), _chunks(reference), _chunks(exact), strict=True):
        got, ref, good = _wide(got), _wide(ref), _wide(good)
        finite = torch.isfinite(ref)
        same_special = finite | (ref == got) | (torch.isnan(ref) & torch.isnan(got))
        bad_special = ~same_special | (finite & ~torch.isfinite(got))
        special += int(bad_special.sum())
        # where the reference overflowed or is NaN, equality was checked above; the oracle may be finite there
        usable = finite & torch.isfinite(got) & torch.isfinite(good)
        error = torch.where(usable, (got - good).abs(), 0)
        allowed = protocol.error_factor * expected.reference_error + floor * (expected.rms + good.abs())
        allowed = torch.where(usable, allowed, 1).clamp_min(torch.finfo(torch.float64).tiny)
        worst = max(worst, float((error / allowed).max()))
        beyond += int((error > allowed).sum())
        if protocol.allclose:
            both = finite & torch.isfinite(got)
            wrong += int((both & ((got - ref).abs() > atol + rtol * ref.abs())).sum())
        greatest = max(greatest, float(error.max()))
        square += float(error.square().sum())
    if special:
        share = special / reference.numel()
        message = (
            f"{expected.path}: NaN or infinity in {share:.2%} of the elements where the reference has another value."
        )
        return Verdict(False, float("inf"), message)
    if not wrong if protocol.allclose else worst <= 1:
        return Verdict(True, worst)
    scale, count = expected.rms or 1.0, reference.numel()
    if protocol.allclose:
        limits, unit = f"the tolerance (absolute {atol:g}, relative {rtol:g})", "rounding explains"
    else:
        wrong, limits, unit = beyond, "rounding explains", "is allowed"
    message = (
        f"{expected.path}: {wrong / count:.2%} of the {_name(reference)} elements are off by more than {limits} "
        f"(greatest error {greatest / scale:.2g} times the output's RMS, {worst:.3g} times what {unit})."
    )
    if not half:
        message += _precision_hint(output, (square / count) ** 0.5 / scale, beyond / count)
    return Verdict(False, worst, message)


def _precision_hint(output: torch.Tensor, relative: float, share: float) -> str:
    """A sentence if the errors of a float32 output have the size and spread of arithmetic in lower precision.

    Args:
        output: the wrong output.
        relative: RMS of its errors over that of the expected values.
        share: share of its elements that rounding does not explain.
    """
    if output.numel() < 2 or relative > _LOW_PRECISION or share < _WIDESPREAD:
        return ""
    for dtype in (torch.bfloat16, torch.float16):
        if output.is_complex():
            break
        if all(torch.equal(part.to(dtype).to(part.dtype), part) for part in _chunks(output)):
            return f" All of its values are {_name(torch.empty(0, dtype=dtype))} numbers: keep it in {_name(output)}."
    return (
        " Errors of this size, in many elements, look like TF32 or half-precision maths (in Triton, tl.dot takes TF32 "
        "unless input_precision is 'ieee'), or like a term that is approximated."
    )


def compare_all(outputs: list[torch.Tensor], expected: list[Expected], protocol: Protocol) -> Verdict:
    """Compare every output; the first wrong one's message, the greatest ratio of all."""
    verdicts = [compare(output, wanted, protocol) for output, wanted in zip(outputs, expected, strict=True)]
    ratio = max((verdict.ratio for verdict in verdicts), default=0.0)
    message = next((verdict.message for verdict in verdicts if not verdict.ok), "")
    return Verdict(not message, ratio, message)


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
