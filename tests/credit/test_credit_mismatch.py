"""The trainer's log-probabilities against the engine's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.credit import LEVELS, mismatch_metrics, mrs_mask, tis_weights
from kernelgym_env.errors import InvalidOptionError, UnknownNameError

ROLLOUT = np.full((2, 4), -1.0)
TURNS = [[0, 0, 1, 1], [0, 0, 1, 1]]


def trained(*ratios):
    """The trainer's log-probabilities that have these ratios to `ROLLOUT`."""
    return ROLLOUT[: len(ratios)] + np.log(np.array(ratios))


log_ratios = st.lists(st.floats(-3, 3), min_size=1, max_size=12)


# --- rejection


def test_each_level_judges_its_own_unit():
    train = trained([1.0, 1.0, 3.0, 0.5], [1.0, 1.0, 1.0, 1.0])
    rollout = ROLLOUT

    def kept(level, **options):
        return mrs_mask(train, rollout, level=level, turns=TURNS, **options).astype(int).tolist()

    whole = [1, 1, 1, 1]
    assert kept("token", low=0.4) == [[1, 1, 0, 1], whole]
    assert kept("turn", high=1.4) == [[1, 1, 0, 0], whole]  # 3 · 0.5 = 1.5
    assert kept("turn", high=1.6) == [whole, whole]
    assert kept("turn_geometric") == [[1, 1, 0, 0], whole]
    assert kept("turn_geometric", low=1.0, high=1.23) == [whole, whole]  # sqrt(1.5) = 1.2247
    assert kept("sequence", high=1.4) == [[0, 0, 0, 0], whole]
    assert kept("geometric") == [[0, 0, 0, 0], whole]
    assert kept("geometric", high=1.11) == [whole, whole]  # 1.5 ** (1 / 4) = 1.1067


@pytest.mark.parametrize(("mean", "kept"), [(-0.00105, False), (-0.00095, True), (0.00095, True), (0.00105, False)])
def test_the_bounds_of_dr_kernel(mean, kept):
    train = np.full(1000, -1.0 + mean)
    train[::2] += 0.3
    train[1::2] -= 0.3  # the mean over tokens counts, not each of them
    assert mrs_mask(train, np.full(1000, -1.0)).all() == kept


def test_a_vanishing_token_vetoes_what_it_belongs_to():
    train = trained([0.9e-4, 1.0, 1.0, 1.0], [1.1e-4, 1.0, 1.0, 1.0])
    wide = {"level": "geometric", "low": 0.0, "high": 2.0, "turns": TURNS}
    assert mrs_mask(train, ROLLOUT, **wide).astype(int).tolist() == [[0, 0, 0, 0], [1, 1, 1, 1]]
    by_turn = mrs_mask(train, ROLLOUT, veto_level="turn", **wide)
    assert by_turn.astype(int).tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    by_token = mrs_mask(train, ROLLOUT, veto_level="token", **wide)
    assert by_token.astype(int).tolist() == [[0, 1, 1, 1], [1, 1, 1, 1]]
    assert mrs_mask(train, ROLLOUT, veto=0, **wide).all()
    impossible = trained([1.0, 1.0, 1.0, 1.0])[0]
    impossible[0] = -np.inf
    assert not mrs_mask(impossible, ROLLOUT[0], low=0.0, high=2.0).any()


def test_masked_tokens_neither_count_nor_stay():
    train = trained([1.0, 1.0, 9.0, 1e-9])
    mask = [[True, True, False, False]]
    assert mrs_mask(train, ROLLOUT[:1], mask=mask).tolist() == mask
    train[0, 3], rollout = np.nan, ROLLOUT[:1].copy()
    rollout[0, 2] = np.nan
    assert mrs_mask(train, rollout, mask=mask).tolist() == mask
    assert not mrs_mask(train, rollout, mask=np.zeros((1, 4), dtype=bool)).any()


@given(log_ratios, st.sampled_from(["token", "sequence", "geometric"]))
def test_equal_log_probabilities_are_always_kept(logs, level):
    assert mrs_mask(logs, logs, level=level).all()
    assert (tis_weights(logs, logs, level=level) == 1).all()


@given(log_ratios, st.sampled_from(list(LEVELS)), st.randoms(use_true_random=False))
def test_the_order_of_tokens_does_not_matter(logs, level, random):
    order = list(range(len(logs)))
    random.shuffle(order)
    rollout, turns = np.linspace(-2, -1, len(logs)), np.arange(len(logs)) % 3
    train = rollout + logs
    here = mrs_mask(train, rollout, level=level, turns=turns)
    there = mrs_mask(train[order], rollout[order], level=level, turns=turns[order])
    assert tis_weights(train[order], rollout[order], level=level, turns=turns[order]) == pytest.approx(
        tis_weights(train, rollout, level=level, turns=turns)[order]
    )
    close = np.abs(np.log(tis_weights(train, rollout, level=level, turns=turns, cap=math.inf)))
    clear = np.min(np.abs(close[:, None] - np.abs(np.log(LEVELS[level]))), axis=1) > 1e-9  # no tie at a bound
    assert np.array_equal(there[clear[order]], here[order][clear[order]])


# --- weights


def test_weights_are_capped_ratios_of_their_unit():
    train = trained([1.0, 1.0, 3.0, 0.5], [0.5, 0.5, 1.0, 4.0])
    assert tis_weights(train, ROLLOUT) == pytest.approx(np.array([[1, 1, 2, 0.5], [0.5, 0.5, 1, 2]]))
    assert tis_weights(train, ROLLOUT, level="turn", turns=TURNS) == pytest.approx(
        np.array([[1, 1, 1.5, 1.5], [0.25, 0.25, 2, 2]])
    )
    assert tis_weights(train, ROLLOUT, level="sequence", cap=1.2) == pytest.approx(np.array([[1.2] * 4, [1.0] * 4]))
    assert tis_weights(train, ROLLOUT, level="geometric") == pytest.approx(np.array([[1.5**0.25] * 4, [1.0] * 4]))
    assert tis_weights(train, ROLLOUT, mask=[[1, 1, 0, 1], [1, 1, 1, 1]])[0].tolist() == pytest.approx([1, 1, 0, 0.5])


def test_weights_do_not_overflow():
    assert tis_weights([0.0], [-1000.0], cap=math.inf) == pytest.approx([math.exp(20)])
    assert tis_weights([-np.inf], [-1.0]).tolist() == [0.0]


# --- diagnostics


def test_metrics_by_hand():
    train, rollout = trained([2.0, 0.5, 1.0, 1.0]), ROLLOUT[:1]
    got = mismatch_metrics(train, rollout)
    assert got["tokens"] == 4
    assert got["kl"] == pytest.approx(0.0, abs=1e-15)
    assert got["k3"] == pytest.approx((2 + 0.5 + 1 + 1) / 4 - 1)
    assert got["chi2"] == pytest.approx((4 + 0.25 + 1 + 1) / 4 - 1)
    assert got["ess"] == pytest.approx(4.5**2 / (4 * 6.25))
    assert (got["ratio_min"], got["ratio_max"]) == pytest.approx((0.5, 2.0))
    assert got["ppl_rollout"] == pytest.approx(math.e)
    assert got["ppl_train"] == pytest.approx(math.e)
    assert got["ppl_ratio"] == pytest.approx(1.0)
    half = mismatch_metrics(train, rollout, mask=[[1, 0, 0, 0]])
    assert half["kl"] == pytest.approx(-math.log(2))
    assert half["ppl_ratio"] == pytest.approx(0.5)
    assert half["ppl_train"] == pytest.approx(math.e / 2)


@given(log_ratios)
def test_bounds_of_the_metrics(logs):
    rollout = np.full(len(logs), -5.0)
    got = mismatch_metrics(rollout + logs, rollout)
    assert got["k3"] >= -1e-12
    assert got["chi2"] >= -1.0
    assert 1 / len(logs) - 1e-12 <= got["ess"] <= 1 + 1e-12
    assert got["ppl_ratio"] == pytest.approx(got["ppl_train"] / got["ppl_rollout"])
    assert got["ratio_min"] <= got["ratio_max"]
    assert all(type(value) is float for value in got.values())


def test_both_estimates_of_the_divergence_agree():
    """Tokens drawn from the engine's distribution: both means are near the KL divergence."""
    rng = np.random.default_rng(0)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.45, 0.35, 0.2])  # engine, trainer
    tokens = rng.choice(3, size=200_000, p=p)
    exact = float(np.sum(p * np.log(p / q)))
    got = mismatch_metrics(np.log(q)[tokens], np.log(p)[tokens])
    assert got["kl"] == pytest.approx(exact, abs=1e-3)
    assert got["k3"] == pytest.approx(exact, abs=1e-4)
    assert got["chi2"] == pytest.approx(float(np.sum(q**2 / p) - 1), abs=1e-3)


def test_without_tokens_there_is_no_figure():
    got = mismatch_metrics([[-1.0]], [[-1.0]], mask=[[False]])
    assert got.pop("tokens") == 0.0
    assert all(math.isnan(value) for value in got.values())
    assert set(got) | {"tokens"} == set(mismatch_metrics([-1.0], [-1.0]))


# --- arguments


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    train = torch.tensor([[-1.0, -2.0]], dtype=torch.bfloat16, requires_grad=True)
    rollout = torch.tensor([[-1.0, -2.0]])
    assert mrs_mask(train, rollout, mask=torch.tensor([[1, 1]])).tolist() == [[True, True]]
    assert tis_weights(train, rollout, turns=torch.tensor([[0, 1]]), level="turn").tolist() == [[1.0, 1.0]]
    assert mismatch_metrics(train, rollout)["kl"] == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rollout": [-1.0]}, r"rollout must have the shape \(2,\)"),
        ({"train": [-1.0, math.nan]}, "train holds nan"),
        ({"train": [-1.0, math.inf]}, "train holds inf"),
        ({"rollout": [-1.0, -math.inf]}, "rollout holds -inf"),
        ({"train": -1.0, "rollout": -1.0}, "axis of tokens"),
        ({"low": 2.0}, "low <= high"),
        ({"low": -1.0}, "low <= high"),
        ({"veto": -1.0}, "veto"),
        ({"level": "turn"}, "'turn' needs turns"),
        ({"level": "turn_geometric"}, "needs turns"),
        ({"veto_level": "turn"}, "needs turns"),
        ({"level": "turn", "turns": [0]}, "turns must have the shape"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    arguments = {"train": [-1.0, -1.0], "rollout": [-1.0, -1.0], **options}
    with pytest.raises(InvalidOptionError, match=message):
        mrs_mask(arguments.pop("train"), arguments.pop("rollout"), **arguments)


def test_unknown_levels_and_caps_are_explained():
    with pytest.raises(UnknownNameError, match="Did you mean 'geometric'"):
        mrs_mask([-1.0], [-1.0], level="geometry")
    with pytest.raises(UnknownNameError, match="Did you mean 'sequence'"):
        mrs_mask([-1.0], [-1.0], veto_level="sequences")
    with pytest.raises(InvalidOptionError, match="cap must be positive"):
        tis_weights([-1.0], [-1.0], cap=0)
