"""Inputs that were never seen before, made from two sets that were drawn: cheap enough for every timed call.

A submission that keeps results by a fingerprint of its input, or by its address, gains as long as contents come
again. So each timed call gets a mixture of two sets, and some calls get what the call before had but for a small part:
whoever looks at a few elements only takes it for the old one, and gives the old answer.

Only what must stay as it is stays: a tensor that is sorted along the rows, symmetric, or a list of distinct integers is
taken from one of the sets as a whole. Tensors with as many rows share their mixture, since they may belong together.

- `Contents` -- makes them.
- `rows_are_free` -- whether rows of two sets may be mixed.
- `elements_are_free` -- whether single elements may.
"""

from __future__ import annotations

import random

import torch

from kernelgym_env.evaluation.reference import Case, Reference, TaskError, clone, flat

__all__ = ["Contents", "elements_are_free", "rows_are_free"]

_SMALL_PART = 64
"""The part that differs in a near twin is one in this many elements: seldom met by a fingerprint of a few."""

_LOOKED_AT = 1 << 16


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
        share = self._rng.uniform(0.2, 0.8)
        picks: dict[int, torch.Tensor] = {}
        for target, pair, free in zip(flat(case.inputs), self._pairs, self._rows, strict=True):
            if pair is None or not free:
                continue
            count = target.shape[0]
            if count not in picks:
                generator = torch.Generator().manual_seed(self._rng.getrandbits(62))
                picks[count] = (torch.rand(count, generator=generator) < share).to(target.device)
            chosen = picks[count].reshape(-1, *[1] * (target.dim() - 1))
            torch.where(chosen, pair[0], pair[1], out=target)
        self.case = case
        return case

    def near(self) -> Case:
        """The last contents but for a small part, at a place that nobody knows."""
        if not self.varied:
            return self.mixed()
        case = self._copy(self.case)
        for target, pair, rows, elements in zip(
            flat(case.inputs), self._pairs, self._rows, self._elements, strict=True
        ):
            if pair is None or not rows:
                continue
            if elements and target.is_contiguous():
                line, length = target.reshape(-1), -(-target.numel() // _SMALL_PART)
                start = self._rng.randrange(target.numel() - length + 1)
                old = line[start : start + length]
                one, two = (tensor.reshape(-1)[start : start + length] for tensor in pair)
            else:
                start, length = self._rng.randrange(target.shape[0]), -(-target.shape[0] // _SMALL_PART)
                old = target[start : start + length]
                one, two = (tensor[start : start + length] for tensor in pair)
            # from the set that it does not have there
            old.copy_(two if torch.equal(old, one) else one)
        self.case = case
        return case

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
