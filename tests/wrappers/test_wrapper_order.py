import itertools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import ClipReward, NormalizeReward, RecordEpisodeStatistics, TimeLimit, TransformReward
from wrapper_helpers import GOOD, fake

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.wrappers import (
    AntiHack,
    ChatObservation,
    Exemplars,
    ExtractCode,
    HistoryPrompt,
    KernelWrapper,
    KevinReward,
    LazyOptimization,
    MilestoneReward,
    RecipeReward,
    RecordTrajectory,
    RewardJump,
    RunningNormalizeClip,
    TerminalOnly,
    TurnReturns,
)
from kernelgym_env.wrappers.order import PLACES, layers, place_of

# from the inside out
REWARDS = [RewardJump, KevinReward, LazyOptimization, AntiHack, RunningNormalizeClip, TurnReturns]
OBSERVATIONS = [RewardJump, Exemplars, HistoryPrompt, ChatObservation]


def recorded(env, tmp_path):
    return RecordTrajectory(env, str(tmp_path / "run.jsonl"))


def test_the_right_order_is_accepted(tmp_path):
    env = fake()
    for wrapper in [*REWARDS, TerminalOnly, *OBSERVATIONS[1:], ExtractCode]:
        env = wrapper(env)
    env = recorded(env, tmp_path)
    assert [place_of(layer) for layer in layers(env)][0] == "record"
    env.reset()
    assert env.step(GOOD)[4]["score"] == 0.0  # the z-score before the warm-up


@pytest.mark.parametrize(
    ("inner", "outer"),
    [(late, early) for track in (REWARDS, OBSERVATIONS) for early, late in itertools.combinations(track, 2)],
    ids=lambda wrapper: wrapper.__name__,
)
def test_every_other_order_raises_and_says_the_right_one(inner, outer):
    with pytest.raises(InvalidOptionError) as caught:
        outer(inner(fake()))
    text = str(caught.value)
    assert text.startswith(f"{outer.__name__} cannot be put around {inner.__name__}.")
    assert text.endswith(f"Right order, from the inside out: {outer.__name__}, {inner.__name__}.")


@pytest.mark.parametrize("outer", [*REWARDS, *OBSERVATIONS, TerminalOnly, ExtractCode], ids=lambda w: w.__name__)
def test_nothing_stands_outside_the_recorder(outer, tmp_path):
    with pytest.raises(InvalidOptionError, match=f"{outer.__name__}, RecordTrajectory"):
        outer(recorded(fake(), tmp_path))


def test_the_order_said_is_accepted(tmp_path):
    """Whatever stands there, the message names it all, in an order that works."""
    classes = {wrapper.__name__: wrapper for wrapper in [*REWARDS, *OBSERVATIONS, ExtractCode, TerminalOnly]}
    env = ExtractCode(TurnReturns(HistoryPrompt(KevinReward(fake()))))
    with pytest.raises(InvalidOptionError) as caught:
        RewardJump(env)
    names = str(caught.value).removesuffix(".").partition("inside out: ")[2].split(", ")
    assert sorted(names) == sorted(["RewardJump", "ExtractCode", "TurnReturns", "HistoryPrompt", "KevinReward"])
    env = fake()
    for name in names:
        env = classes[name](env)


def test_other_wrappers_in_between_change_nothing():
    with pytest.raises(InvalidOptionError, match="KevinReward, AntiHack"):
        KevinReward(RecordEpisodeStatistics(TimeLimit(AntiHack(fake()), 3)))


@pytest.mark.parametrize(
    "normaliser",
    [lambda env: ClipReward(env, -1, 1), NormalizeReward, lambda env: TransformReward(env, np.tanh)],
    ids=["ClipReward", "NormalizeReward", "TransformReward"],
)
def test_gymnasium_s_normalisers_have_their_place(normaliser):
    assert place_of(normaliser(fake())) == "normalize"
    TurnReturns(normaliser(AntiHack(KevinReward(fake()))))
    with pytest.raises(InvalidOptionError, match="Right order"):
        KevinReward(normaliser(fake()))
    with pytest.raises(InvalidOptionError, match="Right order"):
        AntiHack(normaliser(fake()))


def test_a_clip_may_stand_outside_the_z_score():
    env = ClipReward(RunningNormalizeClip(fake()), -1, 1)
    assert place_of(RunningNormalizeClip(ClipReward(fake(), -1, 1))) == place_of(env)


def test_one_recipe_a_stack():
    with pytest.raises(InvalidOptionError, match="MilestoneReward cannot be put around KevinReward.*one wrapper"):
        MilestoneReward(KevinReward(fake()))


@pytest.mark.parametrize("wrapper", [*REWARDS, *OBSERVATIONS, TerminalOnly], ids=lambda wrapper: wrapper.__name__)
def test_no_wrapper_twice(wrapper):
    with pytest.raises(InvalidOptionError, match=wrapper.__name__):
        wrapper(wrapper(fake()))


def test_two_recorders_are_allowed(tmp_path):
    env = recorded(RecordTrajectory(fake(), str(tmp_path / "other.jsonl")), tmp_path)
    env.reset()
    env.step(GOOD)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_wrapper_of_one_s_own_takes_a_place():
    class Mine(KernelWrapper):
        place = "normalize"

    class Reward(RecipeReward):
        def pay(self, evaluation):
            return 1.0

    class Nowhere(KernelWrapper):
        pass

    class Foreign(gym.Wrapper):
        place = "antihack"

    assert place_of(Nowhere(fake())) is None
    assert Mine.place in PLACES
    with pytest.raises(InvalidOptionError, match="Reward, Mine"):
        Reward(Nowhere(Mine(fake())))
    with pytest.raises(InvalidOptionError, match="Reward, Foreign"):
        Reward(Foreign(fake()))


def test_a_misspelt_place_is_an_error():
    """It would otherwise be no place at all, and the wrapper could stand anywhere."""

    class Misspelt(KernelWrapper):
        place = "normalise"

    with pytest.raises(UnknownNameError, match="place of Misspelt 'normalise'. Did you mean 'normalize'"):
        Misspelt(fake())
