import math

import gymnasium as gym
import pytest
from wrapper_helpers import BAD, FAULT, ScriptedEnv, fake, kernel, play

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.wrappers import CudaL1Reward, KevinReward, MilestoneReward, RewardJump

HERE = "wrapper_helpers"
FAST = kernel(18.0)


def test_a_jump_is_measured_again_and_stands_if_it_is_confirmed():
    earned, infos = play(RewardJump(fake()), [kernel(1.0), kernel(1.9), kernel(3.5), BAD])
    assert [info["jump"] for info in infos] == [False, False, True, False]
    assert [info["retest"] for info in infos] == ["", "", "agreed", ""]
    assert {info["trust"] for info in infos} == {1.0}
    assert earned == pytest.approx([1.3, 2.2, 3.8, 0.0])


def test_a_jump_over_the_best_so_far_is_one_too_and_the_best_is_kept_by_task():
    env = RewardJump(fake(), absolute=100.0)
    _, infos = play(env, [kernel(1.0), kernel(2.0), kernel(4.1), kernel(2.5)])
    assert [info["jump"] for info in infos] == [False, False, True, False]
    assert env.best == {"KernelGym/ElementwiseChain": 4.1}
    assert not play(env, [kernel(8.0)])[1][0]["jump"]
    assert play(env, [kernel(17.0)])[1][0]["jump"]


def test_the_slower_evaluation_counts_everywhere():
    env = RewardJump(fake(), retest=f"{HERE}:slower")
    before, _ = env.reset()
    observation, reward, terminated, truncated, info = env.step(FAST)
    assert reward == info["score"] == 2.3
    assert observation["prompt"] == before["prompt"]
    assert (info["speedup"], info["speedup_low"], info["speedup_high"]) == (2.0, 1.9, 2.1)
    assert info["evaluation"]["speedup"] == info["best_speedup"] == 2.0
    assert math.isnan(info["roofline_fraction"])
    assert info["retest"] == "slower"
    assert info["trust"] == pytest.approx(2 / 18)
    assert "2.00x" in observation["feedback"]
    assert "18.00x" not in observation["history"][-1]["feedback"]
    assert observation in env.observation_space
    assert (observation["turn"], info["turn"], info["turns_left"], terminated, truncated) == (1, 1, 3, False, False)
    assert env.unwrapped.episode.best_speedup == 2.0
    assert env.best == {"KernelGym/ElementwiseChain": 2.0}
    assert env.step(kernel(1.0))[4]["turn"] == 2


def test_on_the_last_turn_the_episode_stays_over():
    env = RewardJump(fake(turns=1), retest=f"{HERE}:slower")
    env.reset()
    observation, reward, terminated, *_ = env.step(FAST)
    assert (reward, terminated, observation["turns_left"]) == (2.3, True, 0)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(FAST)


def test_a_second_measurement_that_is_faster_changes_nothing():
    (reward,), (info,) = play(RewardJump(fake(), retest=f"{HERE}:faster"), [FAST])
    assert (reward, info["retest"], info["speedup"]) == (18.3, "slower", 18.0)
    assert info["trust"] == pytest.approx(18 / 50)


@pytest.mark.parametrize(("second", "outcome"), [("slower", "rejected"), ("unmeasured", "rejected")])
def test_without_agreement_no_speed_may_count(second, outcome):
    env = RewardJump(fake(), rule="reject", retest=f"{HERE}:{second}")
    env.reset()
    observation, reward, *_, info = env.step(FAST)
    assert (reward, info["retest"], info["correct"]) == (0.3, outcome, True)
    assert math.isnan(info["speedup"])
    assert math.isnan(info["best_speedup"])
    assert "no speed is credited" in observation["feedback"]
    assert play(CudaL1Reward(RewardJump(fake(), rule="reject", retest=f"{HERE}:{second}")), [FAST])[0] == [0.0]


def test_a_speed_that_cannot_be_measured_again_does_not_count():
    assert play(RewardJump(fake(), retest=f"{HERE}:unmeasured"), [FAST])[0] == [0.3]


def test_a_second_evaluation_that_fails_counts():
    (reward,), (info,) = play(RewardJump(fake(), retest=f"{HERE}:wrong"), [FAST])
    assert (reward, info["status"], info["correct"], info["credited"]) == (0.0, "wrong", False, False)
    assert (info["retest"], info["trust"]) == ("failed", 0.0)


def test_a_fault_in_the_second_evaluation_changes_nothing():
    (reward,), (info,) = play(RewardJump(fake(), retest=f"{HERE}:faulty"), [FAST])
    assert (reward, info["retest"], info["trust"], info["valid"]) == (18.3, "fault", 1.0, True)
    assert play(RewardJump(fake()), [FAULT])[1][0]["retest"] == ""


def test_a_recipe_outside_pays_for_the_evaluation_that_counts():
    assert play(MilestoneReward(RewardJump(fake(), retest=f"{HERE}:wrong")), [FAST])[0] == [-1.0]
    assert play(KevinReward(RewardJump(fake(), retest=f"{HERE}:slower"), weight=1.0), [FAST])[0] == [3.0]


def test_a_judge_lowers_trust_and_decides_nothing_where_measurements_agree():
    (reward,), (info,) = play(RewardJump(fake(), judge=f"{HERE}:distrusts"), [FAST])
    assert (reward, info["retest"], info["trust"]) == (18.3, "agreed", 0.1)


def test_a_judge_never_raises_trust():
    env = RewardJump(fake(), judge=f"{HERE}:trusts", retest=f"{HERE}:slower")
    (reward,), (info,) = play(env, [FAST])
    assert (reward, info["retest"]) == (2.3, "slower")
    assert info["trust"] == pytest.approx(2 / 18)


def test_a_judge_s_doubt_counts_where_measurements_differ():
    env = RewardJump(fake(), judge=f"{HERE}:distrusts", retest=f"{HERE}:slower")
    (reward,), (info,) = play(env, [FAST])
    assert (reward, info["retest"], info["trust"]) == (0.3, "rejected", 0.1)


def test_a_judge_that_breaks_has_no_say():
    env = RewardJump(fake(), judge=f"{HERE}:breaks")
    with pytest.warns(UserWarning, match="ConnectionError"):
        (reward,), (info,) = play(env, [FAST])
    assert (reward, info["trust"]) == (18.3, 1.0)


@pytest.mark.parametrize("judge", ["out_of_range", "silent"])
def test_a_judge_that_says_no_such_number_has_no_say(judge):
    env = RewardJump(fake(), judge=f"{HERE}:{judge}")
    with pytest.warns(UserWarning, match=r"it returned 2\.0|NoneType"):
        (reward,), (info,) = play(env, [FAST])
    assert (reward, info["trust"]) == (18.3, 1.0)


def test_agreement_is_relative_to_the_first():
    # CUDA-L1: 4.0 against 3.7 is accepted, against 3.5 not
    for absolute, agreement, outcome in ((1.9, 0.1, "slower"), (1.9, 0.2, "agreed")):
        env = RewardJump(fake(), absolute=absolute, agreement=agreement, retest=f"{HERE}:slower")
        assert play(env, [kernel(2.3)])[1][0]["retest"] == outcome


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"ratio": 1.0}, InvalidOptionError, "ratio must be"),
        ({"absolute": 0}, InvalidOptionError, "absolute must be"),
        ({"agreement": 1.5}, InvalidOptionError, "agreement must be"),
        ({"rule": "faster"}, UnknownNameError, "slower"),
        ({"judge": "nobody"}, InvalidOptionError, "judge must be"),
        ({"retest": "math:nothing"}, InvalidOptionError, "retest='math:nothing'"),
    ],
)
def test_wrong_arguments(arguments, error, said):
    with pytest.raises(error, match=said):
        RewardJump(fake(), **arguments)


def test_another_environment_is_refused():
    with pytest.raises(InvalidOptionError, match="ScriptedEnv is none"):
        RewardJump(ScriptedEnv())


def test_an_observation_that_was_changed_inside_is_refused():
    """A replaced evaluation comes with the environment's own observation, which is not in the changed space."""
    with pytest.raises(InvalidOptionError, match="Put FilterObservation around RewardJump"):
        RewardJump(gym.wrappers.FilterObservation(fake(), ["turn"]))
    env = gym.wrappers.FilterObservation(RewardJump(fake(), retest=f"{HERE}:slower"), ["turn"])
    env.reset()
    assert set(env.step(FAST)[0]) == {"turn"}


def test_a_pool_that_is_closed_during_the_second_look_is_a_fault_of_it():
    earned, infos = play(RewardJump(fake(), retest=f"{HERE}:cancelled"), [FAST])
    assert (earned[0], infos[0]["retest"], infos[0]["trust"]) == (18.3, "fault", 1.0)
