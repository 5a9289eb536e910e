"""Advantages within groups, and their bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.credit import KINDS, clipped_zscores, group_advantages, pad, turn_returns
from kernelgym_env.errors import InvalidOptionError, UnknownNameError

finite = st.floats(-100, 100)
# Groups of any size, also of one; a turn and a mask for each sample.
samples = st.lists(
    st.tuples(finite, st.sampled_from(["a", "b", ("c", 1)]), st.integers(0, 2), st.booleans()), min_size=1, max_size=24
)


def by_definition(returns, groups, mask, kind, ddof=0, eps=1e-8):
    """One sample at a time, over lists."""
    result = []
    for value, group, counts in zip(returns, groups, mask, strict=True):
        members = [r for r, g, m in zip(returns, groups, mask, strict=True) if g == group and m]
        if not counts:
            result.append(0.0)
            continue
        n, mean = len(members), sum(members) / len(members)
        if n == 1:
            result.append(value if kind == "trloo" else 0.0)
        elif max(members) - min(members) <= 1e-12 * max(map(abs, members)):  # rounding apart, they are equal
            result.append(0.0)
        elif kind in ("rloo", "trloo"):
            result.append(value - (sum(members) - value) / (n - 1))
        elif kind == "grpo":
            variance = sum((member - mean) ** 2 for member in members) / (n - ddof)
            result.append((value - mean) / (math.sqrt(variance) + eps))
        else:
            result.append(value - mean)
    return result


# --- worked examples


def test_the_group_of_kevin():
    scores = np.array([[0, 1.3, 1.8], [0, 0, 0]])
    returns = turn_returns(scores, 0.4)
    advantages = group_advantages(returns, ["task", "task"])
    assert advantages == pytest.approx(np.array([[0.042800, 1.457543, 1.200742], [-0.900362] * 3]), abs=1e-6)
    advantages = group_advantages(returns, ["task", "task"], ddof=1)
    assert advantages == pytest.approx(np.array([[0.039071, 1.330549, 1.096122], [-0.821914] * 3]), abs=1e-6)
    flat = group_advantages(returns.ravel(), ["task"] * 6)
    assert flat.tolist() == group_advantages(returns, ["task", "task"]).ravel().tolist()


@pytest.mark.parametrize(
    ("returns", "trloo", "mean"),
    [
        ((0, 0, 0, 2), (-2 / 3, -2 / 3, -2 / 3, 2), (-0.5, -0.5, -0.5, 1.5)),
        ((1, 3), (-2, 2), (-1, 1)),
        ((4.66, 2, 0), (3.66, -0.33, -3.33), (2.44, -0.22, -2.22)),
    ],
)
def test_leave_one_out_and_mean(returns, trloo, mean):
    keys = [0] * len(returns)
    assert group_advantages(returns, keys, kind="trloo") == pytest.approx(trloo)
    assert group_advantages(returns, keys, kind="rloo") == pytest.approx(trloo)
    assert group_advantages(returns, keys, kind="grpo_mean") == pytest.approx(mean)
    assert group_advantages(returns, keys, kind="dr_grpo") == pytest.approx(mean)


@pytest.mark.parametrize(
    ("kind", "alone"), [("trloo", 3.5), ("rloo", 0), ("grpo", 0), ("grpo_mean", 0), ("dr_grpo", 0)]
)
@pytest.mark.parametrize("ddof", [0, 1])
def test_a_group_of_one(kind, alone, ddof):
    assert group_advantages([3.5, 1, 2], ["a", "b", "b"], kind=kind, ddof=ddof)[0] == alone


def test_the_clip_of_cuda_l1():
    values = clipped_zscores([1, 1.1, 0.9, 1, 18])
    assert values == pytest.approx([-0.499978, -0.485273, -0.514684, -0.499978, 1.5], abs=5e-7)
    assert clipped_zscores([1, 1.1, 0.9, 1, 18], bound=math.inf)[-1] == pytest.approx(1.999914, abs=5e-7)
    assert clipped_zscores([1, 2, 3]) == pytest.approx([-1.224745, 0, 1.224745], abs=5e-7)
    two_groups = clipped_zscores([[1, 1.1, 0.9, 1, 18], [2, 2, 2, 2, 2]], ["a", "b"])
    assert two_groups[0] == pytest.approx(values)
    assert two_groups[1].tolist() == [0.0] * 5
    with pytest.raises(InvalidOptionError, match="bound must be positive"):
        clipped_zscores([1.0], bound=0)


@given(st.lists(finite, min_size=1, max_size=12), st.sampled_from([0, 1]))
def test_small_groups_are_never_clipped(values, ddof):
    scores = clipped_zscores(values, ddof=ddof, bound=math.inf)
    assert np.abs(scores).max() <= math.sqrt(len(values) - 1) + 1e-6
    if len(values) < 4 + ddof:
        assert clipped_zscores(values, ddof=ddof) == pytest.approx(scores, abs=1e-9)


# --- properties


@given(samples, st.sampled_from(KINDS), st.sampled_from([0, 1]))
def test_ragged_groups_by_brute_force(rows, kind, ddof):
    returns, keys, turns, mask = map(list, zip(*rows, strict=True))
    pairs = list(zip(keys, turns, strict=True))
    expected = by_definition(returns, pairs, mask, kind, ddof)
    got = group_advantages(returns, keys, turns=turns, scope="task_turn", kind=kind, ddof=ddof, mask=mask)
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-6)
    expected = by_definition(returns, keys, mask, kind, ddof)
    assert group_advantages(returns, keys, kind=kind, ddof=ddof, mask=mask) == pytest.approx(
        expected, rel=1e-6, abs=1e-6
    )


@given(samples, st.sampled_from(KINDS), st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(rows, kind, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    returns, keys, _, mask = map(list, zip(*rows, strict=True))
    shuffled = group_advantages(
        [returns[i] for i in order], [keys[i] for i in order], kind=kind, mask=[mask[i] for i in order]
    )
    assert shuffled == pytest.approx(group_advantages(returns, keys, kind=kind, mask=mask)[order], abs=1e-5)


@given(samples, st.sampled_from(KINDS))
def test_what_is_masked_counts_for_nothing(rows, kind):
    returns, keys, _, mask = map(list, zip(*rows, strict=True))
    full = group_advantages(
        [r if m else math.nan for r, m in zip(returns, mask, strict=True)], keys, kind=kind, mask=mask
    )
    kept = [index for index, counts in enumerate(mask) if counts]
    alone = group_advantages([returns[i] for i in kept], [keys[i] for i in kept], kind=kind)
    assert full[kept] == pytest.approx(alone)
    assert not full[[index for index, counts in enumerate(mask) if not counts]].any()


@given(samples)
def test_leave_one_out_is_the_mean_times_a_gain(rows):
    returns, keys, _, _ = map(list, zip(*rows, strict=True))
    mean = group_advantages(returns, keys, kind="grpo_mean")
    sizes = np.array([keys.count(key) for key in keys])
    gain = np.where(sizes > 1, sizes / np.maximum(sizes - 1, 1), 0)
    assert group_advantages(returns, keys, kind="rloo") == pytest.approx(mean * gain)
    for key in set(keys):
        assert sum(a for a, k in zip(mean, keys, strict=True) if k == key) == pytest.approx(0, abs=1e-9)


@given(st.lists(finite, min_size=2, max_size=12), st.floats(0.1, 10), finite)
def test_grpo_knows_neither_scale_nor_offset(returns, scale, offset):
    if max(returns) - min(returns) < 1e-2:
        return
    keys = [0] * len(returns)
    moved = [scale * value + offset for value in returns]
    assert group_advantages(moved, keys, eps=0) == pytest.approx(group_advantages(returns, keys, eps=0), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_equal_returns_teach_nothing_also_when_rounded(kind, eps):
    returns = [0.3, 0.1 + 0.2, 0.3, 0.3]
    assert not group_advantages(returns, [0] * 4, kind=kind, eps=eps).any()
    assert not group_advantages([0.1] * 3, [0] * 3, kind=kind, eps=eps).any()
    assert not group_advantages([0.0, 0.0], [0, 0], kind=kind, eps=eps).any()
    assert not group_advantages([0.0, 1e-200], [0, 0], kind=kind, eps=eps).round(9).any()


def test_a_fault_leaves_its_group_and_the_next_turns():
    scores, mask = pad([[0.3, 1.3, 2.3], [0.0, 1.3], [1.3]])
    mask[2, 0] = False  # a fault in its first turn
    returns = turn_returns(scores, 1.0, mask=mask)
    advantages = group_advantages(returns, ["t"] * 3, kind="trloo", scope="task_turn", mask=mask)
    assert advantages == pytest.approx(np.array([[2.6, 2.3, 2.3], [-2.6, -2.3, 0], [0, 0, 0]]))


# --- arguments


def test_keys_and_turns_of_every_form():
    returns = [[1.0, 5.0], [3.0, 7.0], [9.0, 9.0]]
    keys = [("task", 1), ("task", 1), ("task", 2)]
    expected = group_advantages(returns, keys, kind="rloo", scope="task_turn")
    assert expected.tolist() == [[-2, -2], [2, 2], [0, 0]]
    for same in (np.array([7, 7, 8]), np.array(["x", "x", "y"]), np.array([None, None, "y"], dtype=object), (1, 1, 2)):
        assert np.array_equal(group_advantages(returns, same, kind="rloo", scope="task_turn"), expected)
    full = [[7, 7], [7, 7], [8, 8]]
    for turns in ([0, 1], [[0, 1], [0, 1], [0, 1]], np.array([3, 5])):
        assert np.array_equal(group_advantages(returns, full, turns=turns, kind="rloo", scope="task_turn"), expected)
    assert group_advantages([], []).shape == (0,)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    returns = torch.tensor([1.0, 3.0, 5.0], requires_grad=True)
    for keys in (torch.tensor([1, 1, 2]), [torch.tensor(1), torch.tensor(1), torch.tensor(2)]):
        got = group_advantages(returns, keys, kind="rloo", mask=torch.tensor([1, 1, 1]), turns=torch.tensor([0, 0, 0]))
        assert type(got) is np.ndarray
        assert got.tolist() == [-2.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"returns": [1.0, math.nan]}, r"returns\[1\] is nan; leave such turns out with mask"),
        ({"keys": ["a"]}, r"keys must have the shape of the returns \(2,\)"),
        ({"keys": "ab"}, "keys must have the shape"),
        ({"keys": [{}, {}]}, "hashable"),
        ({"ddof": 2}, "ddof must be 0 or 1"),
        ({"eps": -1.0}, "eps"),
        ({"scope": "task_turn"}, "needs turns"),
        ({"scope": "task_turn", "turns": [0]}, "turns must have the shape"),
        ({"scope": "task_turn", "turns": [0.5, 1.5]}, "whole numbers"),
        ({"mask": [True]}, "mask must have the shape"),
        ({"kind": "trloo", "turns": [0, 1]}, "pass scope='task_turn', or kind='rloo'"),
        ({"kind": "trloo", "returns": [[1.0], [2.0]]}, "pass scope='task_turn', or kind='rloo'"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    arguments = {"returns": [1.0, 2.0], "keys": ["a", "a"], **options}
    with pytest.raises(InvalidOptionError, match=message):
        group_advantages(arguments.pop("returns"), arguments.pop("keys"), **arguments)


def test_unknown_names_are_explained():
    with pytest.raises(UnknownNameError, match="Did you mean 'trloo'"):
        group_advantages([1.0], ["a"], kind="trlo")
    with pytest.raises(UnknownNameError, match="Did you mean 'task_turn'"):
        group_advantages([1.0], ["a"], scope="task-turn")


# --- bias


@pytest.mark.parametrize("size", [2, 4, 16])
def test_self_inclusion_scales_the_gradient(size):
    """REINFORCE of a coin with p = 0.3 and reward 1 for heads: the gradient in the logit is p (1 - p).

    The mean over a group holds the sample itself, so that the estimate is 1 - 1/N of the gradient; leaving it out
    gives 1. Three standard errors are allowed, with a seed for which that is known to hold.
    """
    p, groups = 0.3, 240_000 // size
    heads = (np.random.default_rng(size).random((groups, size)) < p).astype(float)
    keys = np.arange(groups)

    def ratio(kind):
        estimates = (group_advantages(heads, keys, kind=kind) * (heads - p)).mean(axis=1) / (p * (1 - p))
        return estimates.mean(), estimates.std(ddof=1) / math.sqrt(groups)

    for kind, expected in (("grpo_mean", 1 - 1 / size), ("dr_grpo", 1 - 1 / size), ("rloo", 1.0)):
        mean, error = ratio(kind)
        assert error < 0.006
        assert abs(mean - expected) < 3 * error, (kind, mean, expected, error)
    turns = np.zeros_like(heads, dtype=int)
    trloo = group_advantages(heads, keys, turns=turns, kind="trloo", scope="task_turn")
    assert np.array_equal(trloo, group_advantages(heads, keys, kind="rloo"))


def test_the_bias_grows_where_groups_shrink():
    """Episodes end early at random, so that later turns have smaller groups: the mean scales them more."""
    rng = np.random.default_rng(1)
    p, groups, size = 0.3, 30_000, 4
    heads = (rng.random((groups * size, 2)) < p).astype(float)
    mask = np.ones_like(heads, dtype=bool)
    mask[:, 1] = np.arange(groups * size) % size < 2  # two of four go on
    keys = np.repeat(np.arange(groups), size)
    for kind, expected in (("grpo_mean", (3 / 4, 1 / 2)), ("trloo", (1.0, 1.0))):
        advantages = group_advantages(heads, keys, kind=kind, scope="task_turn", mask=mask)
        estimates = advantages * (heads - p) / (p * (1 - p))
        for turn in (0, 1):
            counted = estimates[mask[:, turn], turn].reshape(groups, -1).mean(axis=1)
            error = counted.std(ddof=1) / math.sqrt(groups)
            assert abs(counted.mean() - expected[turn]) < 3 * error


def test_options_that_are_no_numbers_are_named():
    with pytest.raises(InvalidOptionError, match="eps must be a number of at least 0, got '1e-6'"):
        group_advantages([1.0], ["a"], eps="1e-6")
    with pytest.raises(InvalidOptionError, match="bound must be positive, got None"):
        clipped_zscores([1.0], bound=None)
