"""Inputs that were never seen before, made from two sets that were drawn: cheap enough for every timed call.

A submission that keeps results by a fingerprint of its input, or by its address, gains as long as contents come
again. So each timed call gets a mixture of two sets, and some calls get what the call before had but for a small part:
whoever looks at a few elements only takes it for the old one, and gives the old answer. Elements are mixed within rows
too, so that a row does not come again either.

Where calls follow each other too quickly for that, on a GPU, the judge writes two sets at the start of a block of
calls, and before each call parts, at places drawn in secret, are exchanged between them: some of the rows, and some of
the columns.

Only what must stay as it is stays: a tensor that is sorted along the rows, symmetric, or a list of distinct integers is
taken from one of the sets as a whole, and rows with a pattern among their elements stay whole. Tensors with as many
rows share their mixture of rows, since they may belong together.

Rows are counted along the first dimension that is longer than 1.

- `Contents` -- makes them; `Walk` is what it makes for a block of calls.
- `rows_are_free` -- whether rows of two sets may be mixed.
- `elements_are_free` -- whether single elements may.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from kernelgym_env.evaluation.buffers import leaves
from kernelgym_env.evaluation.reference import Case, Reference, TaskError, clone, flat

__all__ = ["Contents", "Mixing", "Walk", "elements_are_free", "rows_are_free"]

_SMALL_PART = 64
"""The part that differs in a near twin is often one in this many: seldom met by a fingerprint of a few elements."""

_SMALL_SHARE = 0.5
_LARGE_PART = 2
"""At most one in so many differs otherwise: too much to be made good by computing what changed."""

_LOOKED_AT = 1 << 16

_LESS_FINITE, _TIMES_LARGER, _NO_SIZE = 0.01, 10.0, 1e-6

Mixing = Literal["elements", "rows", "whole"]
"""How far inputs may be mixed."""

_Pair = tuple[torch.Tensor, torch.Tensor]


def rows_are_free(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether any choice of rows from two tensors of like shape is as good an input as each of them.

    >>> rows_are_free(torch.tensor([0, 3, 9]), torch.tensor([0, 4, 5]))
    False
    >>> rows_are_free(torch.randn(4, 3), torch.randn(4, 3))
    True
    """
    if one.dim() < 1 or one.shape[0] < 2 or one.is_complex() or 0 in one.shape or 0 in one.stride():
        return False
    return not any(_is_ordered(tensor) or _is_symmetric(tensor) or _is_distinct(tensor) for tensor in (one, two))


def elements_are_free(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether the same holds for single elements: numbers without zeros, order or a common sum among them.

    >>> elements_are_free(torch.randn(4, 30), torch.randn(4, 30))
    True
    >>> elements_are_free(torch.randn(4, 30).softmax(-1), torch.randn(4, 30).softmax(-1))
    False
    """
    if not rows_are_free(one, two) or not one.is_floating_point():
        return False
    return not any(_has_pattern(tensor) for tensor in (one, two))


def _head(tensor: torch.Tensor) -> torch.Tensor:
    """As many rows as can be looked at quickly."""
    width = max(1, tensor[0].numel())
    return tensor[: max(2, _LOOKED_AT // width)].detach()


def _is_ordered(tensor: torch.Tensor) -> bool:
    head = _head(tensor)
    head = head.to(torch.int8) if head.dtype == torch.bool else head
    return bool((head[1:] >= head[:-1]).all()) or bool((head[1:] <= head[:-1]).all())


def _is_symmetric(tensor: torch.Tensor) -> bool:
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return False
    last = tensor if tensor.dim() == 2 else tensor.reshape(-1, *tensor.shape[-2:])[0]
    return torch.equal(last, last.transpose(-1, -2))


def _is_distinct(tensor: torch.Tensor) -> bool:
    """Whether it may be a permutation, or another list of places that must not come twice."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.shape[0] < 3:
        return False
    rows = tensor.detach().reshape(tensor.shape[0], -1)[:_LOOKED_AT, 0]
    return rows.unique().numel() == rows.numel()


def _has_pattern(tensor: torch.Tensor) -> bool:
    head = _head(tensor).float()
    if not torch.isfinite(head).all() or bool((head == 0).any()):
        return True
    if head.dim() < 2 or head.shape[-1] < 3:
        return False
    step = head[..., 1:] - head[..., :-1]
    if bool((step >= 0).all()) or bool((step <= 0).all()):
        return True
    sums, norms = head.sum(-1), head.square().sum(-1)
    return any(bool(((v - v.mean()).abs() <= 1e-3 * v.abs().mean()).all()) for v in (sums, norms))


def _led(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without leading dimensions of 1, but for the last one."""
    while tensor.dim() > 1 and tensor.shape[0] == 1:
        tensor = tensor[0]
    return tensor


def _lined(tensor: torch.Tensor) -> torch.Tensor:
    """Its rows and columns, as a view; the columns of one that is not contiguous are left as they are."""
    return tensor.view(tensor.shape[0], -1) if tensor.is_contiguous() else tensor


@dataclass(frozen=True)
class _Part:
    """Some rows of a tensor, and some columns of these, if not all; see `_lined`."""

    rows: slice
    columns: slice | None = None

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The part of a tensor, as a view."""
        lined = _lined(tensor)[self.rows]
        return lined if self.columns is None else lined[:, self.columns]

    def lines(self, tensor: torch.Tensor, offset: int) -> tuple[int, int, int, int]:
        """Where it lies if the contiguous tensor begins at an offset: offset, width, height and pitch in bytes."""
        rows, size = tensor.shape[0], tensor.element_size()
        pitch = tensor.numel() // rows * size
        first, last, _ = self.rows.indices(rows)
        if self.columns is None:
            return offset + first * pitch, (last - first) * pitch, 1, (last - first) * pitch
        left, right = self.columns.start * size, self.columns.stop * size
        return offset + first * pitch + left, right - left, last - first, pitch


@dataclass
class Walk:
    """Contents for a block of calls, each of which differs from the one before in a small part.

    Attributes:
        first: what lies in the arguments at the start.
        other: what is exchanged with it, of the same form.
        swaps: before each call, the parts that are exchanged: ``(offset, width, height, pitch)``, so many lines of
            `width` bytes, `pitch` bytes from one to the next, from an offset in the memory in which the arguments lie.
            Shape [calls][parts].
    """

    first: Case
    other: Case
    swaps: list[list[tuple[int, int, int, int]]]
    _parts: list[list[_Pair]]
    _done: int = 0

    def at(self, call: int) -> Case:
        """What a call gets, counted from 0; `first` and `other` are used up for it, so calls are asked for in order."""
        while self._done <= call:
            for one, two in self._parts[self._done]:
                kept = one.clone()
                one.copy_(two)
                two.copy_(kept)
            self._done += 1
        self.first.forget()
        return self.first


class Contents:
    """Makes inputs from one or two cases; with one there is nothing to mix, and it is given again.

    Args:
        cases: drawn inputs of like structure.
        rng: seeded from the secret.
    """

    def __init__(self, cases: list[Case], rng: random.Random) -> None:
        self._cases = cases
        self._rng = rng
        self.case = cases[0]
        tensors = (value for value in flat(cases[0].inputs) if isinstance(value, torch.Tensor))
        self._device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        pairs = zip(flat(cases[0].inputs), flat(cases[-1].inputs), strict=True) if self._alike() else ()
        self._pairs = [
            (_led(one), _led(two)) if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor) else None
            for one, two in pairs
        ]
        self._rows = [pair is not None and rows_are_free(*pair) for pair in self._pairs]
        self._elements = [pair is not None and elements_are_free(*pair) for pair in self._pairs]

    def _alike(self) -> bool:
        return len(self._cases) > 1 and self._cases[0].tree == self._cases[-1].tree

    @property
    def varied(self) -> bool:
        """Whether there is anything to mix."""
        return any(self._rows)

    def mixed(self) -> Case:
        """Each row from one set or the other, at random; what cannot be mixed from one of them as a whole."""
        base = self._rng.choice(self._cases)
        if not self.varied:
            self.case = base
            return base
        case = self._copy(base)
        for index, chosen in self._chosen():
            torch.where(chosen, *self._pair(index), out=_led(flat(case.inputs)[index]))
        self.case = case
        return case

    def _chosen(self) -> Iterator[tuple[int, torch.Tensor]]:
        """What can be mixed, by its place among the inputs, and what of it comes from the first set."""
        share = self._rng.uniform(0.2, 0.8)
        picks: dict[int, torch.Tensor] = {}
        for index in self._mixable:
            shape = self._pair(index)[0].shape
            count = shape[0]
            if count not in picks:
                picks[count] = self._draw(count, share)
            chosen = picks[count].reshape(-1, *[1] * (len(shape) - 1))
            for dim in range(1, len(shape)) if self._elements[index] else ():
                chosen = chosen ^ self._draw(shape[dim], 0.5).reshape(-1, *[1] * (len(shape) - 1 - dim))
            yield index, chosen

    def _draw(self, count: int, share: float) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self._rng.getrandbits(62))
        return (torch.rand(count, generator=generator) < share).to(self._device)

    def near(self) -> Case:
        """The last contents but for a part, often a small one, at a place that nobody knows."""
        if not self.varied:
            return self.mixed()
        case = self._copy(self.case)
        for index in self._mixable:
            target = _led(flat(case.inputs)[index])
            for part in self._parts(target, self._elements[index]):
                old, one, two = (part.of(tensor) for tensor in (target, *self._pair(index)))
                old.copy_(torch.where(old == one, two, one))  # each from the set that it does not have
        self.case = case
        return case

    def walk(self, calls: int) -> Walk:
        """Contents for a block of calls, whose tensors lie in memory as the case describes them."""
        if not self.varied:
            case = self.mixed()
            return Walk(case, case, [[] for _ in range(calls)], [[] for _ in range(calls)])
        base = self._rng.choice(self._cases)
        first, other = self._copy(base), self._copy(base)
        mine, theirs, places = flat(first.inputs), flat(other.inputs), [leaf for _, leaf in leaves(first.tree)]
        for index, chosen in self._chosen():
            pair = self._pair(index)
            torch.where(chosen, *pair, out=_led(mine[index]))
            torch.where(chosen, *reversed(pair), out=_led(theirs[index]))
        swaps: list[list[tuple[int, int, int, int]]] = [[] for _ in range(calls)]
        parts: list[list[_Pair]] = [[] for _ in range(calls)]
        for call in range(calls):
            for index in self._mixable:
                one, two = _led(mine[index]), _led(theirs[index])
                if not one.is_contiguous():
                    continue
                for part in self._parts(one, self._elements[index]):
                    parts[call].append((part.of(one), part.of(two)))
                    swaps[call].append(part.lines(one, places[index]["offset"]))
        self.case = first
        return Walk(first, other, swaps, parts)

    def _parts(self, target: torch.Tensor, elements: bool) -> list[_Part]:
        """Some of the rows, and some of the columns if elements may be mixed; in one row, which has none, elements."""
        found = [_Part(self._range(target.shape[0]))]
        if elements and target.dim() > 1 and target.is_contiguous():
            found.append(_Part(slice(None), self._range(target.numel() // target.shape[0])))
        return found

    def _range(self, count: int) -> slice:
        least = -(-count // _SMALL_PART)
        length = (
            least if self._rng.random() < _SMALL_SHARE else self._rng.randint(least, max(least, count // _LARGE_PART))
        )
        start = self._rng.randrange(count - length + 1)
        return slice(start, start + length)

    def _pair(self, index: int) -> _Pair:
        pair = self._pairs[index]
        assert pair is not None
        return pair

    @property
    def _mixable(self) -> list[int]:
        return [index for index, free in enumerate(self._rows) if free]

    def settle(self, reference: Reference) -> Mixing:
        """Find out how the reference bears to be mixed, and keep to that.

        Inputs may belong together in ways that nobody declared, as rows and their sums do. What has to stay whole shows
        in outputs that are not finite any more, or larger than any before. What is made afterwards is the same as if it
        had been known, and `limit` called.
        """
        drawn = self._rng.getstate()
        while self.varied:
            try:
                borne = _is_like(reference, self.mixed(), self._cases[0])
            except TaskError:
                borne = False
            if borne:
                break
            self.limit("rows" if any(self._elements) else "whole")
        found: Mixing = "elements" if any(self._elements) else "rows" if self.varied else "whole"
        self._rng.setstate(drawn)
        self.limit(found)
        return found

    def limit(self, mixing: Mixing) -> None:
        """Mix no more than that: elements and rows, rows only, or nothing."""
        if mixing != "elements":
            self._elements = [False] * len(self._elements)
        if mixing == "whole":
            self._rows = [False] * len(self._rows)
        self.case = self._cases[0]

    @staticmethod
    def _copy(case: Case) -> Case:
        return Case(clone(case.inputs), case.tree, case.size, [], [])


def _is_like(reference: Reference, case: Case, drawn: Case) -> bool:
    """Whether a case's outputs are about as finite and as large as those of one that was drawn.

    Raises:
        TaskError: if the reference does not take it.
    """
    reference.expect(drawn)
    reference.expect(case)
    pairs = zip(case.expected, drawn.expected, strict=True)
    shares = [[_finite(wanted.reference) for wanted in pair] for pair in pairs]
    return all(
        got[0] >= usual[0] - _LESS_FINITE and got[1] <= _TIMES_LARGER * max(usual[1], _NO_SIZE) for got, usual in shares
    )


def _finite(tensor: torch.Tensor) -> tuple[float, float]:
    """The share of finite elements, and the greatest magnitude among them."""
    if not tensor.numel() or not tensor.is_floating_point():
        return 1.0, 0.0
    finite = torch.isfinite(tensor)
    return float(finite.float().mean()), float(torch.where(finite, tensor, 0).abs().max())
