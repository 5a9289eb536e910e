import math

import gymnasium as gym
import numpy as np
import pytest
from wrapper_helpers import BAD, FAULT, ScriptedEnv, fake, kernel, play

from kernelgym_env.env import STOP
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.wrappers import AntiHack, KevinReward, MilestoneReward, TurnReturns

KEVIN = [BAD, kernel(1.0), kernel(1.5)]


@pytest.mark.parametrize(
    ("gamma", "mode", "returns"),
    [
        (0.4, "sum", (0.808, 2.02, 1.8)),
        (0.4, "max", (0.52, 1.3, 1.8)),
        (0.8, "sum", (2.192, 2.74, 1.8)),
        (0.8, "max", (1.152, 1.44, 1.8)),
        (0.0, "sum", (0, 1.3, 1.8)),
        (1.0, "sum", (3.1, 3.1, 1.8)),
        (1.0, "last", (1.8, 1.8, 1.8)),
        (0.4, "best", (1.8, 1.8, 1.8)),
    ],
)
def test_the_published_examples(gamma, mode, returns):
    env = TurnReturns(KevinReward(fake(turns=3)), gamma, mode)
    _, infos = play(env, KEVIN)
    assert infos[-1]["turn_returns"] == pytest.approx(np.array(returns), abs=1e-12)
    assert infos[-1]["turn_returns"].dtype == np.float64


def test_nothing_is_known_before_the_end_and_the_reward_is_left_alone():
    env = TurnReturns(fake(turns=3))
    _, info = env.reset()
    assert np.isnan(info["turn_returns"]).all()
    earned, infos = play(env, KEVIN)
    assert earned == [0.0, 1.3, 1.8] == [info["score"] for info in infos]
    assert all(np.isnan(info["turn_returns"]).all() for info in infos[:-1])
    assert [info["turn_returns"].shape for info in infos] == [(3,)] * 3


def test_a_second_episode_starts_anew():
    env = TurnReturns(fake(turns=3))
    first, second = (play(env, KEVIN)[1][-1]["turn_returns"] for _ in range(2))
    assert first.tolist() == second.tolist()
    env.reset()
    env.step(kernel(9.0))  # left in the middle
    assert play(env, KEVIN)[1][-1]["turn_returns"].tolist() == first.tolist()


@pytest.mark.parametrize("mode", ["sum", "max", "last", "best"])
def test_a_stop_has_no_score_and_no_return(mode):
    _, infos = play(TurnReturns(MilestoneReward(fake()), mode=mode), [BAD, STOP])
    assert infos[-1]["turn_returns"][0] == -1.0
    assert np.isnan(infos[-1]["turn_returns"][1:]).all()


def test_a_fault_has_no_return_and_leaves_the_others_theirs():
    _, infos = play(TurnReturns(fake(), gamma=1.0), [kernel(1.0), kernel(status="task_invalid"), FAULT])
    returns = infos[-1]["turn_returns"]
    assert returns[0] == 1.3
    assert np.isnan(returns[1:]).all()


def test_an_episode_that_a_guard_ended():
    env = TurnReturns(AntiHack(fake(), cost="minus_one_end"), gamma=0.5)
    _, infos = play(env, [kernel(1.0), kernel(status="integrity")])
    assert infos[-1]["turn_returns"][:2].tolist() == [1.3 - 0.5, -1.0]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_a_foreign_environment_that_gives_only_a_score(end):
    env = ScriptedEnv([{"score": score} for score in (0.0, 1.3, 1.8)], end=end)
    earned, infos = play(TurnReturns(env), [0, 0, 0])
    assert earned == [0.0] * 3
    assert infos[-1]["turn_returns"].round(6).tolist() == [0.808, 2.02, 1.8]
    assert [len(info["turn_returns"]) for info in infos] == [0, 0, 3]


def test_the_room_for_turns_can_be_given_or_comes_from_a_limit():
    infos = [{"score": 1.0}] * 3
    given = TurnReturns(ScriptedEnv(infos), turns=5)
    assert given.reset()[1]["turn_returns"].shape == (5,)
    assert play(given, [0, 0, 0])[1][-1]["turn_returns"].shape == (5,)
    limited = TurnReturns(gym.wrappers.TimeLimit(ScriptedEnv(infos), 2))
    returns = play(limited, [0, 0])[1][-1]["turn_returns"]
    assert returns.tolist() == [1.4, 1.0]


def test_an_episode_longer_than_its_room_is_told():
    env = TurnReturns(ScriptedEnv([{"score": 1.0}] * 3), turns=2)
    with pytest.raises(InvalidOptionError, match="room for 2 turns"):
        play(env, [0, 0, 0])


def test_without_a_score_it_is_told():
    with pytest.raises(InvalidOptionError, match=r"TurnReturns reads info\['score'\]"):
        play(TurnReturns(ScriptedEnv([{}])), [0])


def test_discounting_twice_is_another_number():
    """What the documentation warns of."""
    scores, gamma = np.array([0, 1.3, 1.8]), 0.4
    _, infos = play(TurnReturns(fake(turns=3), gamma), KEVIN)
    once = infos[-1]["turn_returns"]
    twice = [sum(gamma**k * value for k, value in enumerate(once[t:])) for t in range(3)]
    assert once[0] == pytest.approx(sum(gamma**k * score for k, score in enumerate(scores)))
    assert twice[0] != pytest.approx(once[0])


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"gamma": 1.5}, InvalidOptionError, "gamma must be"),
        ({"gamma": math.nan}, InvalidOptionError, "gamma"),
        ({"mode": "summ"}, UnknownNameError, "sum"),
        ({"turns": 0}, InvalidOptionError, "turns must be"),
    ],
)
def test_wrong_arguments(arguments, error, said):
    with pytest.raises(error, match=said):
        TurnReturns(fake(), **arguments)
