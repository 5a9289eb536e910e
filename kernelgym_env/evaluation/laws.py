"""Inputs with other values than `get_inputs` draws, of the same structure.

A law rewrites the values of one drawn set of inputs. What a program may rely on stays as it was:

- shapes, dtypes, strides, the place of each argument, one tensor passed twice;
- exact zeros, and that nothing else is zero;
- symmetry of square matrices, order along a dimension;
- the sign, unless a tensor has both; values within 0 and 1; sums of 1 along a dimension;
- integers, booleans and floats that hold integers, which are permuted only, and not where they are ordered, all
  different, or a square pattern;
- tensors of one element, of one or two values, with NaN or infinity, with overlapping elements, of other dtypes.

A law comes in levels, from the strongest to the mildest, since a reference that overflows at one may be sound at the
next.

- `LEVELS` -- the number of levels of each law.
- `NATURE` -- what a law does to values, in words that give nothing away.
- `vary` -- inputs under a law.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelgym_env.evaluation.reference import clone, map_tensors
from kernelgym_env.tasks.model import INPUT_LAWS

__all__ = ["LEVELS", "NATURE", "vary"]

NATURE = {
    "scaled_up": "much larger values",
    "scaled_down": "much smaller values",
    "shifted": "values around another middle than zero",
    "heavy_tailed": "a few values that are far greater than most",
    "outlier": "a single value that is far greater than all others",
    "uneven": "slices of very different scale",
    "permuted": "the same values in another order",
}

_UP = ((16.0, 32.0), (4.0, 6.0), (2.0, 3.0))
_DOWN = ((1 / 8, 1 / 6), (1 / 3, 1 / 2))  # not less: what is right to rounding at one must stay so, as log(1 + x * x)
_SHIFT = ((2.5, 4.0), (1.0, 1.5))  # in standard deviations; a variance as the difference of two sums survives it
_TAIL = ((64.0, 256.0), (8.0, 16.0), (3.0, 4.0))
_OUTLIER = ((128.0, 160.0), (10.0, 12.0), (3.0, 4.0))
_POWER = ((4.0, 6.0), (2.0, 3.0), (1.5, 2.0))
_SPREAD = (6.0, 2.0)

LEVELS = {
    "scaled_up": len(_UP),
    "scaled_down": len(_DOWN),
    "shifted": len(_SHIFT),
    "heavy_tailed": len(_TAIL),
    "outlier": len(_OUTLIER),
    "uneven": len(_SPREAD),
    "permuted": 1,
}
assert tuple(LEVELS) == tuple(NATURE) == INPUT_LAWS

_RARE, _FEW, _LOOKED_AT = 256, 3, 256
_CORNER = 8
_LARGE, _AT_ONCE = 1 << 20, 1 << 26
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass
class _Draw:
    """The random choices of one use of a law: those that all tensors share, and a generator for each tensor's own."""

    level: int
    factor: float
    rng: random.Random

    def generator(self, device: torch.device) -> torch.Generator:
        return torch.Generator(device=device).manual_seed(self.rng.getrandbits(63))


def vary(name: str, inputs: list[Any], seed: int, level: int = 0) -> list[Any] | None:
    """Inputs of the same structure under a law; those given stay as they are.

    Args:
        name: one of `INPUT_LAWS`.
        inputs: what `get_inputs` drew: a pytree of tensors and plain values.
        seed: of all random choices.
        level: 0 for the strongest form, at most ``LEVELS[name] - 1``.

    Returns:
        New inputs, or None if the law leaves every tensor as it is.

    >>> x = torch.tensor([[0.5, 0.0, -2.0]])
    >>> varied = vary("scaled_up", [x, 3], seed=1)
    >>> varied[0].sign().tolist(), bool(varied[0].abs().max() >= 32), varied[1]
    ([[1.0, 0.0, -1.0]], True, 3)
    """
    rng = random.Random(seed)
    bounds = {"scaled_up": _UP, "scaled_down": _DOWN}.get(name)
    draw = _Draw(level, rng.uniform(*bounds[level]) if bounds else 1.0, rng)
    known: dict[int, torch.Tensor] = {}
    changed = False

    def tensor(old: torch.Tensor) -> torch.Tensor:
        nonlocal changed
        if id(old) not in known:
            new = known[id(old)] = clone(old)
            view = _distinct(new)
            values = None if view is None or view.numel() < 2 else _varied(name, view, draw)
            if view is not None and values is not None:
                changed = changed or not torch.equal(view, values)
                view.copy_(values)
        return known[id(old)]

    result = map_tensors(tensor, inputs)
    return result if changed else None


def _varied(name: str, view: torch.Tensor, draw: _Draw) -> torch.Tensor | None:
    """New values of a tensor whose elements are distinct, None to leave it as it is."""
    if view.is_complex():
        return view * draw.factor if draw.factor != 1.0 else None
    if view.dtype in _INTEGERS or view.dtype == torch.bool:
        return _rows_permuted(view, draw) if name == "permuted" else None
    if view.dtype not in _FLOATS:
        return None
    values = view if view.dtype in (torch.float32, torch.float64) else view.float()
    low, high = (float(bound) for bound in torch.aminmax(values))
    if not math.isfinite(low) or not math.isfinite(high):
        return None
    if _everywhere(lambda part: (part == low) | (part == high), values):
        return None
    if _everywhere(lambda part: part == part.round(), values):
        return _rows_permuted(view, draw) if name == "permuted" else None
    new = _LAWS[name](values, _Traits.of(values, low, high), draw)
    return None if new is None else _settle(new, view)


def _settle(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """New values in the old ones' dtype: finite, and zero exactly where they were; the new ones' memory is used."""
    limits = torch.finfo(old.dtype)
    new = new.clamp_(limits.min / 4, limits.max / 4).to(old.dtype)
    dim = max(range(new.dim()), key=lambda dim: new.shape[dim])
    count = max(1, _AT_ONCE * new.shape[dim] // new.numel())
    for part, before in zip(new.split(count, dim), old.split(count, dim), strict=True):
        small = part.abs() < limits.tiny
        if bool(small.any()):
            least = torch.full_like(part, limits.tiny).copysign(part)
            part.copy_(torch.where(small & (before != 0), least, part))
    return new


@dataclass(frozen=True)
class _Traits:
    """What must be kept of a tensor of floats: see the module."""

    both_signs: bool
    zeros: bool
    unit: bool
    sums: tuple[int, ...]
    ordered: bool
    symmetric: bool

    @classmethod
    def of(cls, values: torch.Tensor, low: float, high: float) -> _Traits:
        unit = low >= 0.0 and high <= 1.0
        return cls(
            both_signs=low < 0.0 < high,
            zeros=int(values.count_nonzero()) < values.numel(),
            unit=unit,
            sums=_sums_of_one(values) if unit else (),
            ordered=_is_ordered(values),
            symmetric=_is_symmetric(values),
        )


def _scaled(values: torch.Tensor, traits: _Traits, draw: _Draw) -> torch.Tensor | None:
    if traits.sums or (traits.unit and draw.factor > 1):
        return None
    return values * draw.factor


def _shifted(values: torch.Tensor, traits: _Traits, draw: _Draw) -> torch.Tensor | None:
    if not traits.both_signs or (traits.ordered and traits.zeros):
        return None
    deviation = float(values[values != 0].std()) if traits.zeros else float(values.std())
    new = values + draw.rng.choice((-1, 1)) * draw.rng.uniform(*_SHIFT[draw.level]) * deviation
    return torch.where(values == 0, values, new) if traits.zeros else new


def _heavy_tailed(values: torch.Tensor, traits: _Traits, draw: _Draw) -> torch.Tensor | None:
    if traits.unit:
        if len(traits.sums) > 1:
            return None
        powers = values ** draw.rng.uniform(*_POWER[draw.level])
        return powers / powers.sum(traits.sums[0], keepdim=True) if traits.sums else powers
    if traits.ordered or traits.symmetric:
        return None
    generator, low, high = draw.generator(values.device), *_TAIL[draw.level]
    count = max(1, values.numel() // _RARE)
    places = torch.randint(values.numel(), (count,), generator=generator, device=values.device)
    new = values.flatten()
    factors = low + (high - low) * _uniform(torch.Size((count,)), generator)
    return new.index_copy(0, places, new[places] * factors).view(values.shape)


def _outlier(values: torch.Tensor, traits: _Traits, draw: _Draw) -> torch.Tensor | None:
    if traits.unit or traits.ordered or traits.symmetric:
        return None
    generator, low, high = draw.generator(values.device), *_OUTLIER[draw.level]
    flat = values.flatten()
    places = torch.randint(flat.numel(), (_LOOKED_AT,), generator=generator, device=values.device)
    places = places[flat[places] != 0]
    if not places.numel():
        return None
    # positive ones first: what overflows where a value is large does so at these
    places = places[flat[places].sign().argsort(descending=True, stable=True)]
    usual = float(flat[places].abs().mean())
    chosen = torch.cat([places[:1], places[1:].flip(0)[: draw.rng.randrange(_FEW)]])
    factors = low + (high - low) * _uniform(chosen.shape, generator)
    return flat.index_copy(0, chosen, flat[chosen].sign() * usual * factors).view(values.shape)


def _uneven(values: torch.Tensor, traits: _Traits, draw: _Draw) -> torch.Tensor | None:
    dims = [dim for dim, extent in enumerate(values.shape) if extent > 1]
    if traits.sums or traits.ordered or traits.symmetric or len(dims) < 2:
        return None
    dim, spread = draw.rng.choice(dims), _SPREAD[draw.level]
    shape = [extent if place == dim else 1 for place, extent in enumerate(values.shape)]
    exponent = 2 * _uniform(torch.Size(shape), draw.generator(values.device)) - 1
    return values * torch.exp2(spread * (exponent - 1 if traits.unit else exponent))


def _permuted(values: torch.Tensor, traits: _Traits, draw: _Draw) -> torch.Tensor | None:
    if traits.ordered or traits.symmetric or (traits.zeros and traits.sums):
        return None
    generator, large = draw.generator(values.device), values.numel() > _LARGE
    if traits.sums or (large and not traits.zeros):
        new = values
        for dim in range(values.dim()):  # whole slices: sums stay, and little memory is taken
            order = torch.randperm(values.shape[dim], generator=generator, device=values.device)
            new = new.index_select(dim, order)
        return new
    flat = values.flatten()
    places = flat.nonzero()[:, 0]
    if large:
        moved = flat[places].roll(draw.rng.randrange(1, places.numel()))
    else:
        moved = flat[places[torch.randperm(places.numel(), generator=generator, device=values.device)]]
    return flat.index_copy(0, places, moved).view(values.shape)


_LAWS: dict[str, Callable[[torch.Tensor, _Traits, _Draw], torch.Tensor | None]] = {
    "scaled_up": _scaled,
    "scaled_down": _scaled,
    "shifted": _shifted,
    "heavy_tailed": _heavy_tailed,
    "outlier": _outlier,
    "uneven": _uneven,
    "permuted": _permuted,
}


def _rows_permuted(view: torch.Tensor, draw: _Draw) -> torch.Tensor | None:
    """Slices along the first dimension in another order, so that what holds within a slice does so still.

    Offsets, lengths in order, permutations and triangular masks stay as they are.
    """
    values = view.to(torch.uint8) if view.dtype == torch.bool else view
    dim = next((dim for dim, extent in enumerate(values.shape) if extent > 1), None)
    if dim is None or _is_ordered(values) or _is_symmetric(values) or _is_triangular(values):
        return None
    # all different: a permutation, or a list of places. A part says no to nearly all that are not.
    if all(part.unique().numel() == part.numel() for part in (values.flatten()[:4096], values)):
        return None
    order = torch.randperm(values.shape[dim], generator=draw.generator(view.device), device=view.device)
    return view.index_select(dim, order)


def _everywhere(holds: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> bool:
    """Whether something holds of all elements; a corner of them is nearly always enough to say no."""
    return bool(holds(_corner(values)).all()) and bool(holds(values).all())


def _corner(values: torch.Tensor) -> torch.Tensor:
    return values[(slice(_CORNER),) * values.dim()]


def _uniform(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float32)


def _distinct(tensor: torch.Tensor) -> torch.Tensor | None:
    """A view of a tensor that has each element once, without what `expand` repeated; None if they overlap otherwise."""
    view = tensor
    for dim, step in enumerate(tensor.stride()):
        if step == 0 and tensor.shape[dim] > 1:
            view = view.narrow(dim, 0, 1)
    reach = 1
    for step, extent in sorted((s, n) for s, n in zip(view.stride(), view.shape, strict=True) if n > 1):
        if step < reach:
            return None
        reach += (extent - 1) * step
    return view


def _is_ordered(values: torch.Tensor) -> bool:
    """Whether the elements rise, or fall, along some dimension, everywhere."""
    corner = _corner(values)

    def ordered(part: torch.Tensor, dim: int) -> bool:
        before, after = part.narrow(dim, 0, part.shape[dim] - 1), part.narrow(dim, 1, part.shape[dim] - 1)
        return bool((before <= after).all()) or bool((before >= after).all())

    dims = [dim for dim, extent in enumerate(values.shape) if extent > 1]
    return any(ordered(corner, dim) and ordered(values, dim) for dim in dims)


def _is_square(values: torch.Tensor) -> bool:
    return values.dim() >= 2 and values.shape[-1] == values.shape[-2] > 1


def _is_symmetric(values: torch.Tensor) -> bool:
    if not _is_square(values):
        return False
    corner = values[..., :_CORNER, :_CORNER]
    return torch.equal(corner, corner.mT) and torch.equal(values, values.mT)


def _is_triangular(values: torch.Tensor) -> bool:
    return _is_square(values) and (not bool(values.triu(1).any()) or not bool(values.tril(-1).any()))


def _sums_of_one(values: torch.Tensor) -> tuple[int, ...]:
    """The dimensions along which the elements sum to 1."""
    dims = (dim for dim, extent in enumerate(values.shape) if extent > 1)
    return tuple(dim for dim in dims if bool(((values.sum(dim) - 1).abs() < 1e-2).all()))
