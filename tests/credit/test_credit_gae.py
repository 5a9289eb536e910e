"""Generalised advantages, and their agreement with stable-baselines3."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.credit import gae, turn_returns
from kernelgym_env.errors import InvalidOptionError

KEVIN = [0, 1.3, 1.8]
ENDS = [False, False, True]

numbers = st.floats(-10, 10)


@st.composite
def rollouts(draw):
    length = draw(st.integers(1, 8))
    column = st.lists(numbers, min_size=length, max_size=length)
    flags = st.lists(st.booleans(), min_size=length, max_size=length)
    return tuple(np.array(draw(part)) for part in (column, column, flags, flags, column))


def by_definition(rewards, values, terminated, truncated, bootstrap, gamma, lam):
    """The sum of discounted temporal differences up to the end of the episode."""
    length, advantages = len(rewards), []
    for start in range(length):
        total, weight = 0.0, 1.0
        for t in range(start, length):
            if terminated[t]:
                ahead = 0.0
            elif truncated[t] or t == length - 1:
                ahead = bootstrap[t]
            else:
                ahead = values[t + 1]
            total += weight * (rewards[t] + gamma * ahead - values[t])
            weight *= gamma * lam
            if terminated[t] or truncated[t]:
                break
        advantages.append(total)
    return advantages


def test_it_is_kevin_s_sum_without_a_critic():
    result = gae(KEVIN, [0, 0, 0], terminated=ENDS, gamma=0.4, lam=1)
    assert result.advantages == pytest.approx([0.808, 2.02, 1.8], rel=1e-12)
    assert result.targets == pytest.approx([0.808, 2.02, 1.8], rel=1e-12)


@given(rollouts(), st.floats(0, 1), st.floats(0, 1))
def test_it_follows_its_definition(rollout, gamma, lam):
    rewards, values, terminated, truncated, bootstrap = rollout
    result = gae(rewards, values, terminated=terminated, truncated=truncated, bootstrap=bootstrap, gamma=gamma, lam=lam)
    expected = by_definition(*rollout, gamma, lam)
    assert result.advantages == pytest.approx(expected, abs=1e-9)
    assert result.targets == pytest.approx(np.add(expected, values), abs=1e-9)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=4), st.floats(0, 1))
def test_lambda_1_targets_are_returns_and_lambda_0_one_step(rows, gamma):
    scores = np.array(rows)
    values = np.arange(scores.size, dtype=float).reshape(scores.shape)
    terminated = np.zeros(scores.shape, dtype=bool)
    terminated[:, -1] = True
    assert gae(scores, values, terminated=terminated, gamma=gamma, lam=1).targets == pytest.approx(
        turn_returns(scores, gamma), abs=1e-9
    )
    following = np.concatenate([values[:, 1:], np.zeros((len(values), 1))], axis=1)
    assert gae(scores, values, terminated=terminated, gamma=gamma, lam=0).targets == pytest.approx(
        scores + gamma * following, abs=1e-9
    )


def test_one_row_of_two_episodes_is_two_rows():
    ends = [False, True, False, True]
    joined = gae([1.0, 2.0, 3.0, 4.0], [0.5, 0.6, 0.7, 0.8], terminated=ends, gamma=0.9)
    apart = gae([[1.0, 2.0], [3.0, 4.0]], [[0.5, 0.6], [0.7, 0.8]], terminated=[[0, 1], [0, 1]], gamma=0.9)
    assert joined.advantages.tolist() == apart.advantages.ravel().tolist()


def test_a_turn_that_does_not_count_hands_over_its_value():
    # The third turn is a fault: its reward says nothing, the state before it was reached.
    cut = [False, False, True]
    result = gae(
        [1.0, 2.0, 99.0], [0.1, 0.2, 5.0], terminated=[0, 0, 0], truncated=cut, mask=[1, 1, 0], gamma=0.5, lam=1
    )
    expected = gae([1.0, 2.0], [0.1, 0.2], terminated=[0, 0], bootstrap=5.0, gamma=0.5, lam=1)
    assert result.advantages.tolist() == [*expected.advantages, 0.0]
    assert result.targets.tolist() == [*expected.targets, 0.0]


def test_an_episode_that_goes_on_is_bootstrapped_before_padding():
    padded = gae([1, 2, 0], [0, 0, 7], terminated=[0, 0, 0], bootstrap=5.0, mask=[1, 1, 0], gamma=0.5, lam=1)
    alone = gae([1, 2], [0, 0], terminated=[0, 0], bootstrap=5.0, gamma=0.5, lam=1)
    assert padded.advantages.tolist() == [*alone.advantages, 0.0]
    with pytest.raises(InvalidOptionError, match=r"goes on after turn \[1\]"):
        gae([1, 2, 0], [0, 0, 0], terminated=[0, 0, 0], mask=[1, 1, 0])


def test_padding_may_hold_anything():
    result = gae([[1.0, math.nan]], [[0.5, math.nan]], terminated=[[True, False]], mask=[[True, False]])
    assert result.advantages.tolist() == [[0.5, 0.0]]
    assert result.targets.tolist() == [[1.0, 0.0]]


def test_bootstraps_broadcast_and_are_read_where_needed():
    flags = np.zeros((2, 2), dtype=bool)
    per_row = gae(np.ones((2, 2)), np.zeros((2, 2)), terminated=flags, bootstrap=[[1.0], [2.0]], gamma=1, lam=1)
    assert per_row.advantages.tolist() == [[3.0, 2.0], [4.0, 3.0]]
    full = [[math.nan, 1.0], [math.nan, 2.0]]
    assert np.array_equal(
        gae(np.ones((2, 2)), np.zeros((2, 2)), terminated=flags, bootstrap=full, gamma=1, lam=1).advantages,
        per_row.advantages,
    )


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    values = torch.zeros(3, requires_grad=True)
    got = gae(torch.tensor(KEVIN), values, terminated=torch.tensor(ENDS), gamma=0.4, lam=1)
    assert type(got.advantages) is np.ndarray
    assert got.advantages == pytest.approx([0.808, 2.02, 1.8], rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terminated": [0, 0, 0]}, r"goes on after turn \[2\]: give the value there with bootstrap"),
        ({"truncated": [1, 0, 0]}, r"goes on after turn \[0\]"),
        ({"truncated": [1, 0, 0], "bootstrap": math.nan}, r"bootstrap\[0\] is nan"),
        ({"truncated": [1, 0, 0], "bootstrap": [1.0, 2.0]}, "does not broadcast"),
        ({"values": [0.0]}, r"values must have the shape \(3,\)"),
        ({"values": [0.0, math.nan, 0.0]}, r"values\[1\] is nan"),
        ({"values": [0.0, math.nan, 0.0], "mask": [1, 0, 1]}, r"advantage at \[0\] is not finite"),
        ({"rewards": []}, "at least one turn"),
        ({"gamma": 2.0}, "gamma"),
        ({"lam": -1.0}, "lam"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    arguments = {"rewards": KEVIN, "values": [0.0, 0.0, 0.0], "terminated": ENDS, **options}
    with pytest.raises(InvalidOptionError, match=message):
        gae(arguments.pop("rewards"), arguments.pop("values"), **arguments)


# --- stable-baselines3


def by_stable_baselines3(rewards, values, dones, last_value, gamma, lam):
    """Its rollout buffer: one environment, `dones` after each step."""
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    import torch

    length = len(rewards)
    space = gym.spaces.Box(0, 1, (1,))
    buffer = buffers.RolloutBuffer(length, space, space, device="cpu", gae_lambda=lam, gamma=gamma, n_envs=1)
    starts = [True, *dones[:-1]]
    for reward, value, start in zip(rewards, values, starts, strict=True):
        one = np.zeros((1, 1), dtype=np.float32)
        buffer.add(one, one, np.array([reward]), np.array([start]), torch.tensor([value]), torch.zeros(1))
    buffer.compute_returns_and_advantage(torch.tensor([float(last_value)]), np.array([dones[-1]]))
    return buffer.advantages[:, 0], buffer.returns[:, 0]


def test_kevin_s_sum_in_stable_baselines3():
    advantages, returns = by_stable_baselines3(KEVIN, [0.0, 0.0, 0.0], ENDS, 0.0, gamma=0.4, lam=1.0)
    assert advantages == pytest.approx([0.808, 2.02, 1.8], rel=1e-6)
    ours = gae(KEVIN, [0.0, 0.0, 0.0], terminated=ENDS, gamma=0.4, lam=1)
    assert ours.advantages == pytest.approx(advantages, rel=1e-6)
    assert ours.targets == pytest.approx(returns, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_rollouts_in_stable_baselines3(seed):
    rng = np.random.default_rng(seed)
    length, gamma, lam = 12, 0.9, 0.95
    rewards, values, bootstrap = rng.normal(size=(3, length))
    terminated, truncated = rng.random((2, length)) < 0.25
    ours = gae(rewards, values, terminated=terminated, truncated=truncated, bootstrap=bootstrap, gamma=gamma, lam=lam)
    # It adds the discounted value to the reward of a truncated step, and then takes it for an end.
    theirs = rewards + gamma * bootstrap * (truncated & ~terminated)
    advantages, returns = by_stable_baselines3(
        theirs, values, list(terminated | truncated), bootstrap[-1], gamma=gamma, lam=lam
    )
    assert ours.advantages == pytest.approx(advantages, abs=1e-5)
    assert ours.targets == pytest.approx(returns, abs=1e-5)
