"""Inputs made from two sets that were drawn."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelgym_env.evaluation.buffers import describe
from kernelgym_env.evaluation.contents import Contents, elements_are_free, rows_are_free
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.reference import Case, Reference, clone
from kernelgym_env.tasks.model import Task


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
def test_what_is_in_a_mixture_comes_from_one_of_the_sets(name, seed):
    torch.manual_seed(seed)
    one, two = FREE[name](), FREE[name]()
    made = contents([one], [two], seed).mixed().inputs[0]
    assert (made.shape, made.dtype, made.stride()) == (one.shape, one.dtype, one.stride())
    if elements_are_free(one, two):
        assert ((made == one) | (made == two)).all()
        return
    for row, a, b in zip(made, one, two, strict=True):
        assert torch.equal(row, a) or torch.equal(row, b)


@pytest.mark.parametrize("shape", [(40, 32), (1, 100), (1, 1, 9, 30), (60,)])
def test_no_row_of_numbers_comes_again(shape):
    torch.manual_seed(1)
    made = contents([torch.randn(shape)], [torch.randn(shape)])
    seen = set()
    for _ in range(4):
        for got in (made.mixed(), made.near()):
            rows = got.inputs[0].reshape(-1, shape[-1])
            seen |= {row.numpy().tobytes() for row in rows}
    # a near twin may share rows' parts with the one before, but hardly a whole row
    assert len(seen) >= 0.9 * 8 * math.prod(shape[:-1])


@given(st.integers(0, 2**31))
def test_tensors_with_as_many_rows_share_their_mixture(seed):
    torch.manual_seed(seed)
    rows = [torch.randn(12, 3).softmax(-1) for _ in range(2)]
    greatest = [row.argmax(-1) for row in rows]  # belongs to its row
    assume(rows_are_free(*greatest))  # one in half a million is the same everywhere, which is an order
    made = contents([rows[0], greatest[0]], [rows[1], greatest[1]], seed).mixed()
    assert torch.equal(made.inputs[0].argmax(-1), made.inputs[1])


@given(st.integers(0, 2**31))
def test_a_near_twin_keeps_most(seed):
    torch.manual_seed(seed)
    made = contents([torch.randn(64, 64)], [torch.randn(64, 64)], seed)
    before = made.mixed().inputs[0]
    after = made.near().inputs[0]
    rows, columns = (before != after).any(1), (before != after).any(0)
    assert rows.all() or columns.all()  # a band of columns in all rows, or all columns of a band of rows
    assert int((before != after).sum()) <= 0.5 * 64 * 64


@pytest.mark.slow
def test_near_twins_are_often_very_near():
    made = contents([torch.randn(256, 256)], [torch.randn(256, 256)])
    shares = []
    for _ in range(200):
        before = made.mixed().inputs[0]
        shares.append(float((before != made.near().inputs[0]).float().mean()))
    assert 0.15 <= sum(share < 0.05 for share in shares) / len(shares) <= 0.4


TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, peak):
        return {expression}

def get_inputs():
    x = torch.randn(16, 64)
    return [x, x.amax(-1, keepdim=True)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("expression", "mixing"), [("x * peak", "elements"), ("torch.exp(100 * (x - peak))", "rows")])
def test_mixing_goes_as_far_as_the_reference_bears_it(expression, mixing):
    task = Task("Test/Peak", TASK.format(expression=expression)).for_device("cpu")
    reference = Reference(task, "cpu", 0, get_protocol("strict"))
    reference.construct()
    reference.probe(0)
    made = Contents([reference.case(1), reference.case(2)], random.Random(0))
    assert made.settle(reference) == mixing
    x, peak = made.mixed().inputs
    assert bool((x <= peak).all()) == (mixing == "rows")


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
        for offset, width, height, pitch in parts:
            for start in range(offset, offset + height * pitch, pitch):
                place = slice(start, start + width)
                kept = memory[0][place].clone()
                memory[0][place], memory[1][place] = memory[1][place], kept
        assert not torch.equal(memory[0], before)
        before = memory[0].clone()
    last = walk.at(5)
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
    assert walk.at(2) is walk.first
