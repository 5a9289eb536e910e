"""Inputs made from two sets that were drawn."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.evaluation.buffers import describe
from kernelgym_env.evaluation.contents import Contents, elements_are_free, rows_are_free
from kernelgym_env.evaluation.reference import Case, clone


def case(*inputs):
    tree, size = describe(list(inputs), dense=False)
    return Case(list(inputs), tree, size, [], [])


def contents(one, two, seed=0):
    return Contents([case(*one), case(*two)], random.Random(seed))


FREE = {
    "numbers": lambda: torch.randn(8, 30),
    "labels": lambda: torch.randint(0, 5, (64,)),
    "mask": lambda: torch.rand(64, 7) > 0.5,
    "transposed": lambda: torch.randn(30, 8).t(),
    "probabilities": lambda: torch.randn(8, 30).softmax(-1),
    "one-hot": lambda: torch.eye(9)[torch.randint(0, 9, (40,))],
}
WHOLE = {
    "offsets": lambda: torch.randint(1, 5, (16,)).cumsum(0),
    "sorted": lambda: torch.randn(50).sort().values,
    "permutation": lambda: torch.randperm(32),
    "symmetric": lambda: (lambda a: a + a.T)(torch.randn(6, 6)),
    "one row": lambda: torch.randn(1, 100),
    "scalar": lambda: torch.randn(()),
    "expanded": lambda: torch.randn(1, 5).expand(4, 5),
}


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in FREE.items()])
def test_rows_of_ordinary_tensors_are_free(make):
    torch.manual_seed(1)
    assert rows_are_free(make(), make())


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in WHOLE.items()])
def test_what_has_an_order_of_rows_is_taken_as_a_whole(make):
    torch.manual_seed(1)
    one, two = make(), make()
    assert not rows_are_free(one, two)
    made = contents([one], [two])
    for _ in range(4):
        for got in (made.mixed(), made.near()):
            assert any(torch.equal(got.inputs[0], whole) for whole in (one, two))


@pytest.mark.parametrize("name", ["probabilities", "one-hot", "labels", "mask"])
def test_elements_that_belong_together_are_not_free(name):
    torch.manual_seed(1)
    assert not elements_are_free(FREE[name](), FREE[name]())


@given(st.sampled_from(sorted(FREE)), st.integers(0, 2**31))
def test_every_row_of_a_mixture_comes_from_one_of_the_sets(name, seed):
    torch.manual_seed(seed)
    one, two = FREE[name](), FREE[name]()
    made = contents([one], [two], seed).mixed().inputs[0]
    assert (made.shape, made.dtype, made.stride()) == (one.shape, one.dtype, one.stride())
    for row, a, b in zip(made, one, two, strict=True):
        assert torch.equal(row, a) or torch.equal(row, b)


@given(st.integers(0, 2**31))
def test_tensors_with_as_many_rows_share_their_mixture(seed):
    torch.manual_seed(seed)
    rows = [torch.randn(12, 3), torch.randn(12, 3)]
    lengths = [row.sum(-1) for row in rows]  # belongs to its row
    made = contents([rows[0], lengths[0]], [rows[1], lengths[1]], seed).mixed()
    assert torch.equal(made.inputs[0].sum(-1), made.inputs[1])


@given(st.integers(0, 2**31))
def test_a_near_twin_differs_in_a_small_part_only(seed):
    torch.manual_seed(seed)
    made = contents([torch.randn(64, 64)], [torch.randn(64, 64)], seed)
    before = made.mixed().inputs[0]
    after = made.near().inputs[0]
    changed = int((before != after).sum())
    assert 0 < changed <= 64


def test_what_was_drawn_stays_as_it_is():
    one, two = torch.randn(8, 8), torch.randn(8, 8)
    kept = clone([one, two])
    made = contents([one], [two])
    for _ in range(5):
        made.mixed()
        made.near()
    assert torch.equal(one, kept[0]) and torch.equal(two, kept[1])


def test_one_set_is_given_again():
    only = case(torch.randn(4, 4))
    made = Contents([only], random.Random(0))
    assert not made.varied
    assert made.mixed() is only and made.near() is only


@pytest.mark.parametrize("shape", [(64, 8), (5, 3, 2), (2, 40)])
def test_a_walk_says_what_each_call_gets(shape):
    one, two = torch.randn(shape), torch.randn(shape)
    indices = [torch.randint(0, 9, (shape[0], 2)) for _ in range(2)]
    made = contents([one, indices[0]], [two, indices[1]])
    walk = made.walk(6)
    tree, size = describe(walk.first.inputs, dense=False)
    # what the worker does with plain memory
    memory = [torch.zeros(size, dtype=torch.uint8) for _ in range(2)]
    for case, bytes_ in zip((walk.first, walk.other), memory, strict=True):
        for leaf, tensor in zip(tree["items"], case.inputs, strict=True):
            raw = tensor.reshape(-1).view(torch.uint8)
            bytes_[leaf["offset"] : leaf["offset"] + raw.numel()] = raw
    before = memory[0].clone()
    for parts in walk.swaps:
        assert parts
        for offset, count in parts:
            place = slice(offset, offset + count)
            kept = memory[0][place].clone()
            memory[0][place], memory[1][place] = memory[1][place], kept
        assert not torch.equal(memory[0], before)
        before = memory[0].clone()
    last = walk.last()
    for leaf, tensor in zip(tree["items"], last.inputs, strict=True):
        raw = tensor.reshape(-1).view(torch.uint8)
        assert torch.equal(memory[0][leaf["offset"] : leaf["offset"] + raw.numel()], raw)
    # each row or element is one of the two sets'
    assert bool(((last.inputs[0] == one) | (last.inputs[0] == two)).all())


def test_a_walk_over_what_cannot_be_mixed_stays_where_it_is():
    ordered = torch.arange(12.0)
    made = contents([ordered], [ordered + 1])
    walk = made.walk(3)
    assert walk.swaps == [[], [], []]
    assert walk.last() is walk.first
