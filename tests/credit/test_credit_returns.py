"""Returns along episodes and trees."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kernelgym_env.credit import MODES, improvements, pad, tree_returns, turn_returns
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.rewards import improvement, kevin

LAYERNORM = (0.9, 4.57, 0, 0, 9.91)
CONV3D = (1.36, 0, 0.91, 1.49, 1.49, 1.49, 2.23, 0)

score = st.floats(-100, 100)
episode = st.lists(score, min_size=1, max_size=8)
gammas = st.floats(0, 1)


def by_definition(scores, gamma, mode, mask=None):
    """The formulas, term by term; NaN where the mask is False."""
    turns = range(len(scores))
    counts = [True for _ in turns] if mask is None else mask
    result = []
    for t in turns:
        ahead = [gamma ** (i - t) * scores[i] for i in turns if i >= t and counts[i]]
        if not counts[t]:
            result.append(math.nan)
        elif mode == "best":
            result.append(max(scores[i] for i in turns if counts[i]))
        else:
            result.append({"sum": sum, "max": max, "last": lambda terms: terms[-1]}[mode](ahead))
    return result


@pytest.mark.parametrize(
    ("scores", "gamma", "mode", "returns"),
    [
        ((0, 1.3, 1.8), 0.4, "sum", (0.808, 2.02, 1.8)),
        ((0, 1.3, 1.8), 0.4, "max", (0.52, 1.3, 1.8)),
        ((0, 1.3, 1.8), 0.8, "sum", (2.192, 2.74, 1.8)),
        ((0, 1.3, 1.8), 0.8, "max", (1.152, 1.44, 1.8)),
        ((0, 1.3, 1.8), 0.0, "sum", (0, 1.3, 1.8)),
        ((0, 1.3, 1.8), 0.0, "max", (0, 1.3, 1.8)),
        ((0, 1.3, 1.8), 1.0, "sum", (3.1, 3.1, 1.8)),
        ((0, 1.3, 1.8), 1.0, "last", (1.8, 1.8, 1.8)),
        ((0, 1.8, 1.3), 1.0, "best", (1.8, 1.8, 1.8)),
        (LAYERNORM, 0.4, "sum", (2.981696, 5.20424, 1.5856, 3.964, 9.91)),
        (LAYERNORM, 0.4, "max", (1.828, 4.57, 1.5856, 3.964, 9.91)),
        (CONV3D, 0.4, "sum", (1.663496, 0.758739, 1.896848, 2.46712, 2.4428, 2.382, 2.23, 0)),
        (CONV3D, 0.4, "max", (1.36, 0.364, 0.91, 1.49, 1.49, 1.49, 2.23, 0)),
    ],
)
def test_worked_examples(scores, gamma, mode, returns):
    # 5e-7: the examples are given to six decimals.
    assert turn_returns(scores, gamma, mode) == pytest.approx(returns, abs=5e-7)


def test_trajectories_of_kevin_score_by_score():
    speedups = (0.6, 4.27, None, None, 9.61)
    evaluations = [
        Evaluation("a/b", Status.WRONG) if s is None else Evaluation("a/b", Status.CORRECT, speedup=s) for s in speedups
    ]
    assert [kevin(evaluation) for evaluation in evaluations] == pytest.approx(LAYERNORM)


@given(episode, gammas, st.sampled_from(MODES), st.data())
def test_returns_follow_their_definition(scores, gamma, mode, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    expected = by_definition(scores, gamma, mode, mask)
    assert turn_returns(scores, gamma, mode, mask=mask) == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert turn_returns(scores, gamma, mode) == pytest.approx(by_definition(scores, gamma, mode), abs=1e-9)


@given(episode)
def test_gamma_0_is_the_score_and_gamma_1_the_plain_sum(scores):
    assert turn_returns(scores, 0).tolist() == scores
    assert turn_returns(scores, 1) == pytest.approx(np.cumsum(scores[::-1])[::-1], abs=1e-9)
    assert turn_returns(scores, 1, "max") == pytest.approx(np.maximum.accumulate(scores[::-1])[::-1])
    assert turn_returns(scores, 1, "last").tolist() == [scores[-1]] * len(scores)
    positive = [abs(value) for value in scores]
    assert turn_returns(positive, 0, "max").tolist() == positive


@given(st.lists(episode, min_size=1, max_size=4), gammas, st.sampled_from(MODES))
def test_a_ragged_batch_is_its_rows(rows, gamma, mode):
    values, mask = pad(rows, fill=math.nan)
    returns = turn_returns(values, gamma, mode, mask=mask)
    for number, row in enumerate(rows):
        assert returns[number, : len(row)] == pytest.approx(turn_returns(row, gamma, mode))
        assert np.isnan(returns[number, len(row) :]).all()


def test_shapes_and_kinds_of_numbers():
    scores = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    returns = turn_returns(scores, 0.5)
    assert returns.shape == scores.shape
    assert returns.dtype == np.float64
    assert returns[1, 2] == pytest.approx(turn_returns(scores[1, 2].tolist(), 0.5))
    assert scores[0, 0, 0] == 0.0  # the argument is left alone
    assert turn_returns([], 0.5).shape == (0,)
    assert turn_returns([True, False], 1).tolist() == [1.0, 0.0]


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    scores = torch.tensor([0, 1.3, 1.8], dtype=torch.float64, requires_grad=True)
    returns = turn_returns(scores, 0.4, mask=torch.tensor([True, True, True]))
    assert type(returns) is np.ndarray
    assert returns == pytest.approx([0.808, 2.02, 1.8])
    assert turn_returns([torch.tensor(1.0), torch.tensor(2.0)], 1).tolist() == [3.0, 2.0]
    assert turn_returns(torch.tensor([1.0, 2.0], dtype=torch.bfloat16), 1).tolist() == [3.0, 2.0]
    assert improvements(torch.tensor([1, 3])).tolist() == [1.0, 2.0]
    assert tree_returns(torch.tensor([1.0, 2.0]), torch.tensor([-1, 0]), 1).tolist() == [3.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.0], 1.5), {}, "gamma must be a number from 0 to 1, got 1.5"),
        (([1.0], math.nan), {}, "gamma"),
        (([1.0, math.nan], 0.5), {}, r"scores\[1\] is nan; leave such turns out with mask"),
        (([[1.0], [math.inf]], 0.5), {}, r"scores\[1, 0\] is inf"),
        ((3.0, 0.5), {}, "axis of turns"),
        (([[1.0], [1.0, 2.0]], 0.5), {}, "rows of equal length; kernelgym_env.credit.pad"),
        ((["a"], 0.5), {}, "must hold numbers"),
        (([1.0], 0.5), {"mask": [True, True]}, r"mask must have the shape \(1,\), got \(2,\)"),
        (([1.0], 0.5), {"mask": [0.5]}, "True and False"),
    ],
)
def test_what_is_no_episode_is_refused(arguments, options, message):
    with pytest.raises(InvalidOptionError, match=message):
        turn_returns(*arguments, **options)


def test_an_unknown_mode_is_named():
    with pytest.raises(UnknownNameError, match="Did you mean 'sum'"):
        turn_returns([1.0], 0.5, "sums")
    with pytest.raises(UnknownNameError, match="Unknown way to combine children 'min'. .*Allowed: max, mean"):
        tree_returns([1.0], [None], 0.5, over="min")


# --- trees


@given(episode, gammas, st.sampled_from(MODES), st.sampled_from(["mean", "max"]), st.data())
def test_a_tree_without_branches_is_an_episode(scores, gamma, mode, over, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    expected = turn_returns(scores, gamma, mode, mask=mask)
    parents = [-1, *range(len(scores) - 1)]
    assert tree_returns(scores, parents, gamma, mode, over=over, mask=mask) == pytest.approx(expected, nan_ok=True)
    order = data.draw(st.permutations(range(len(scores))))
    shuffled = tree_returns(
        [scores[i] for i in order],
        [f"turn {parents[i]}" if i else None for i in order],
        gamma,
        mode,
        over=over,
        ids=[f"turn {i}" for i in order],
        mask=[mask[i] for i in order],
    )
    assert shuffled == pytest.approx(expected[list(order)], nan_ok=True)


#      0
#    1   2        scores 1, 2, 4; 6 under 1; 3 and 9 under 2
#    3  4 5
TREE = ([1.0, 2.0, 4.0, 6.0, 3.0, 9.0], [None, 0, 0, 1, 2, 2])


@pytest.mark.parametrize(
    ("mode", "over", "returns"),
    [
        ("sum", "mean", [1 + 0.5 * (5 + 7) / 2, 2 + 3, 4 + 0.5 * 6, 6, 3, 9]),
        ("sum", "max", [1 + 0.5 * 8.5, 5, 4 + 4.5, 6, 3, 9]),
        ("max", "mean", [0.5 * (3 + 4) / 2, 3, 4, 6, 3, 9]),
        ("max", "max", [0.5 * 4.5, 3, 4.5, 6, 3, 9]),
        ("last", "mean", [0.5 * (3 + 3) / 2, 3, 3, 6, 3, 9]),
        ("best", "mean", [(6 + 6.5) / 2, 6, (4 + 9) / 2, 6, 4, 9]),
        ("best", "max", [9, 6, 9, 6, 4, 9]),
    ],
)
def test_branches_are_averaged_or_the_best_is_taken(mode, over, returns):
    assert tree_returns(*TREE, 0.5, mode, over=over).tolist() == returns


def test_a_fault_in_a_tree_is_no_branch():
    mask = [True, True, True, False, True, False]
    returns = tree_returns(*TREE, 0.5, mask=mask)
    assert returns == pytest.approx([1 + 0.5 * (2 + 5.5) / 2, 2, 4 + 1.5, math.nan, 3, math.nan], nan_ok=True)
    assert tree_returns([1.0, 2.0], [None, 0], 0.5, mask=[True, False])[0] == 1.0
    assert tree_returns([1.0, 2.0, 8.0], [None, 0, 1], 0.5, mask=[True, False, True])[0] == 3.0


def test_several_roots_are_several_trees():
    assert tree_returns([1.0, 2.0, 4.0], [-1, 0, None], 1).tolist() == [3.0, 2.0, 4.0]
    assert tree_returns([], [], 1).tolist() == []


@pytest.mark.parametrize(
    ("parents", "ids", "message"),
    [
        ([None, 5], None, r"parents\[1\] is 5, which is no node's id"),
        ([1, 0], None, "cycle"),
        ([0, None], None, "cycle"),
        ([None], None, "one entry for each of the 2 nodes"),
        ([None, "a"], ["a"], "one entry for each of the 2 nodes"),
        ([None, "a"], ["a", "a"], "ids must differ"),
        ([-1, "a"], ["a", "b"], r"parents\[0\] is -1"),
    ],
)
def test_what_is_no_tree_is_refused(parents, ids, message):
    with pytest.raises(InvalidOptionError, match=message):
        tree_returns([1.0, 2.0], parents, 1, ids=ids)


def test_a_deep_tree_needs_no_stack():
    assert tree_returns(np.ones(20_000), [-1, *range(19_999)], 1)[0] == 20_000


# --- improvements


def test_improvements_of_the_convolution():
    added = improvements(CONV3D)
    assert added == pytest.approx((1.36, 0, 0, 0.13, 0, 0, 0.74, 0))
    assert added.sum() == pytest.approx(2.23)


@given(episode, score)
def test_improvements_telescope(scores, start):
    added = improvements(scores, start=start)
    assert (added >= 0).all()
    assert added.sum() == pytest.approx(max(max(scores) - start, 0.0))
    # The return with gamma 1 is what is still to be gained.
    reached = np.maximum.accumulate(np.maximum(scores, start))
    assert turn_returns(added, 1) == pytest.approx(max(*scores, start) - np.concatenate([[start], reached[:-1]]))


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_turn_by_turn_and_afterwards_are_the_same(speedups):
    best, rewards = 0.0, []
    for speedup in speedups:
        evaluation = Evaluation("a/b", Status.CORRECT, speedup=speedup)
        rewards.append(improvement(evaluation, best))
        best = max(best, kevin(evaluation))
    assert improvements([0.3 + speedup for speedup in speedups]) == pytest.approx(rewards)


def test_masked_turns_improve_nothing():
    assert improvements([1.0, 9.0, 2.0], mask=[True, False, True]).tolist() == [1.0, 0.0, 1.0]
    assert improvements([[1.0, math.nan], [3.0, 4.0]], mask=[[1, 0], [1, 1]]).tolist() == [[1.0, 0.0], [3.0, 1.0]]
    with pytest.raises(InvalidOptionError, match="start"):
        improvements([1.0], start=math.nan)


@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 4)), elements=score))
def test_padding_whole_rows_changes_nothing(values):
    padded, mask = pad(list(values))
    assert np.array_equal(padded, values)
    assert mask.all()


def test_padding_of_nothing_and_of_tables():
    assert pad([])[0].shape == (0, 0)
    assert pad([[], [1.0]])[1].tolist() == [[False], [True]]
    with pytest.raises(InvalidOptionError, match=r"rows\[0\] must have the shape"):
        pad([[[1.0]]])


def test_tensors_may_stand_anywhere_in_lists():
    torch = pytest.importorskip("torch")
    scores = torch.tensor([[0.0, 1.0], [2.0, 3.0]], requires_grad=True)
    wanted = turn_returns(scores, 0.5).tolist()
    assert turn_returns([list(row) for row in scores], 0.5).tolist() == wanted
    assert turn_returns([[scores[0, 0], 1.0], scores[1]], torch.tensor(0.5)).tolist() == wanted


@pytest.mark.parametrize("gamma", ["0.4", None, [0.4], np.array([0.4])])
def test_a_gamma_that_is_no_number_is_named(gamma):
    with pytest.raises(InvalidOptionError, match="gamma must be a number from 0 to 1, got"):
        turn_returns([1.0], gamma)
    with pytest.raises(InvalidOptionError, match="start must be a finite number"):
        improvements([1.0], start="0")
