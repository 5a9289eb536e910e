"""Inputs that were never seen before, made from two sets that were drawn: cheap enough for every timed call.

A submission that keeps results by a fingerprint of its input, or by its address, gains as long as contents come
again. So each timed call gets a mixture of two sets, and some calls get what the call before had but for a small part:
whoever looks at a few elements only takes it for the old one, and gives the old answer.

Where calls follow each other too quickly for that, on a GPU, the judge writes two sets at the start of a block of
calls, and before each call a small part, at a place drawn in secret, is exchanged between them.

Only what must stay as it is stays: a tensor that is sorted along the rows, symmetric, or a list of distinct integers is
taken from one of the sets as a whole. Tensors with as many rows share their mixture, since they may belong together.

- `Contents` -- makes them; `Walk` is what it makes for a block of calls.
- `rows_are_free` -- whether rows of two sets may be mixed.
- `elements_are_free` -- whether single elements may.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernelgym_env.evaluation.buffers import leaves
from kernelgym_env.evaluation.reference import Case, Reference, TaskError, clone, flat

__all__ = ["Contents", "Walk", "elements_are_free", "rows_are_free"]

_SMALL_PART = 64
"""The part that differs in a near twin is one in this many elements: seldom met by a fingerprint of a few."""

_LOOKED_AT = 1 << 16

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


def _piece(tensor: torch.Tensor, start: int, length: int, lined: bool) -> torch.Tensor:
    """A part of a tensor, counted in elements or in rows."""
    return (tensor.reshape(-1) if lined else tensor)[start : start + length]


@dataclass
class Walk:
    """Contents for a block of calls, each of which differs from the one before in a small part.

    Attributes:
        first: what lies in the arguments at the start.
        other: what is exchanged with it, of the same form.
        swaps: before each call, the parts that are exchanged: ``(offset, bytes)`` from the start of the memory in which
            the arguments lie. Shape [calls][parts].
    """

    first: Case
    other: Case
    swaps: list[list[tuple[int, int]]]
    _parts: list[_Pair]

    def last(self) -> Case:
        """What the last call gets; `first` and `other` are used up for it."""
        for one, two in self._parts:
            kept = one.clone()
            one.copy_(two)
            two.copy_(kept)
        self._parts = []
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
        pairs = zip(flat(cases[0].inputs), flat(cases[-1].inputs), strict=True) if self._alike() else ()
        self._pairs = [
            (one, two) if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor) else None
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
        for target, pair, chosen in self._chosen(case):
            torch.where(chosen, *pair, out=target)
        self.case = case
        return case

    def _chosen(self, case: Case) -> Iterator[tuple[torch.Tensor, _Pair, torch.Tensor]]:
        """Each tensor of a case that can be mixed, the two sets', and which rows come from the first."""
        share = self._rng.uniform(0.2, 0.8)
        picks: dict[int, torch.Tensor] = {}
        for target, pair, free in zip(flat(case.inputs), self._pairs, self._rows, strict=True):
            if pair is None or not free:
                continue
            count = target.shape[0]
            if count not in picks:
                generator = torch.Generator().manual_seed(self._rng.getrandbits(62))
                picks[count] = (torch.rand(count, generator=generator) < share).to(target.device)
            yield target, pair, picks[count].reshape(-1, *[1] * (target.dim() - 1))

    def near(self) -> Case:
        """The last contents but for a small part, at a place that nobody knows."""
        if not self.varied:
            return self.mixed()
        case = self._copy(self.case)
        for target, pair, rows, elements in self._each(case):
            if pair is None or not rows:
                continue
            start, length, lined = self._part(target, elements)
            old, one, two = (_piece(tensor, start, length, lined) for tensor in (target, *pair))
            # from the set that it does not have there
            old.copy_(two if torch.equal(old, one) else one)
        self.case = case
        return case

    def walk(self, calls: int) -> Walk:
        """Contents for a block of calls, whose tensors lie in memory as the case describes them."""
        if not self.varied:
            case = self.mixed()
            return Walk(case, case, [[] for _ in range(calls)], [])
        base = self._rng.choice(self._cases)
        first, other = self._copy(base), self._copy(base)
        others = {id(mine): theirs for mine, theirs in zip(flat(first.inputs), flat(other.inputs), strict=True)}
        for target, pair, chosen in self._chosen(first):
            torch.where(chosen, *pair, out=target)
            torch.where(chosen, *reversed(pair), out=others[id(target)])
        places = [leaf for _, leaf in leaves(first.tree)]
        swaps: list[list[tuple[int, int]]] = []
        parts: list[_Pair] = []
        for _ in range(calls):
            swaps.append([])
            for (target, sets, rows, elements), place in zip(self._each(first), places, strict=True):
                if sets is None or not rows or not target.is_contiguous():
                    continue
                start, length, lined = self._part(target, elements)
                mine, theirs = (_piece(tensor, start, length, lined) for tensor in (target, others[id(target)]))
                parts.append((mine, theirs))
                step = target.element_size() * (1 if lined else target[0].numel())
                swaps[-1].append((place["offset"] + start * step, length * step))
        self.case = first
        return Walk(first, other, swaps, parts)

    def _each(self, case: Case) -> Iterator[tuple[torch.Tensor, _Pair | None, bool, bool]]:
        return zip(flat(case.inputs), self._pairs, self._rows, self._elements, strict=True)

    def _part(self, target: torch.Tensor, elements: bool) -> tuple[int, int, bool]:
        """Where a small part begins, how long it is, and whether that counts elements instead of rows."""
        lined = elements and target.is_contiguous()
        count = target.numel() if lined else target.shape[0]
        length = -(-count // _SMALL_PART)
        return self._rng.randrange(count - length + 1), length, lined

    def settle(self, reference: Reference) -> None:
        """Find out whether the reference takes mixtures; one that does not is given the drawn sets as they are."""
        if not self.varied:
            return
        case = self.mixed()
        try:
            reference.expect(case)
        except TaskError:
            self._rows = [False] * len(self._rows)
            self.case = self._cases[0]

    @staticmethod
    def _copy(case: Case) -> Case:
        return Case(clone(case.inputs), case.tree, case.size, [], [])
