import math

import gymnasium as gym
import pytest
from wrapper_helpers import BAD, FAULT, GOOD, Findings, ScriptedEnv, fake, kernel, play

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Status
from kernelgym_env.wrappers import AntiHack, HistoryPrompt, KevinReward, MilestoneReward, TritonRLReward

HARD = ("A2", "hard", "calls the reference")
SOFT = ("C1", "soft", "a jump")


def guarded(*findings, **options):
    return AntiHack(KevinReward(Findings(fake(), *findings)), **options)


def test_a_hard_finding_costs_the_reward():
    (reward,), (info,) = play(guarded(HARD), [GOOD])
    assert (reward, info["score"]) == (0.0, 0.0)
    assert (info["hack"], info["hack_cost"], info["hack_rate"]) == (True, "zero", 1.0)


def test_a_soft_finding_costs_nothing_unless_it_is_asked_for():
    (reward,), (info,) = play(guarded(SOFT), [GOOD])
    assert (reward, info["hack"], info["hack_cost"]) == (2.3, False, "none")
    assert play(guarded(SOFT, severities=["hard", "soft"]), [GOOD])[0] == [0.0]
    assert play(guarded(SOFT, overrides={"C1": "minus_one"}), [GOOD])[0] == [-1.0]


def test_an_override_pardons():
    assert play(guarded(HARD, overrides={"A2": "none"}), [GOOD])[0] == [2.3]
    assert play(guarded(HARD, SOFT, overrides={"A2": "none"}), [GOOD])[0] == [2.3]


@pytest.mark.parametrize(
    ("costs", "outcome"),
    [
        (("zero", "minus_one"), (-1.0, False, "minus_one")),
        (("zero_end", "minus_one"), (-1.0, True, "minus_one_end")),
        (("zero_end", "none"), (0.0, True, "zero_end")),
    ],
)
def test_several_findings_cost_what_each_of_them_costs(costs, outcome):
    env = guarded(HARD, SOFT, overrides=dict(zip(("A2", "C1"), costs, strict=True)))
    env.reset()
    _, reward, terminated, truncated, info = env.step(GOOD)
    assert (reward, terminated, info["hack_cost"]) == outcome
    assert not truncated


@pytest.mark.parametrize("status", ["policy", "integrity"])
def test_a_status_is_caught_without_a_finding(status):
    (reward,), (info,) = play(AntiHack(fake(), cost="minus_one"), [kernel(status=status)])
    assert (reward, info["score"], info["hack"]) == (-1.0, -1.0, True)
    assert play(AntiHack(fake(), cost="minus_one", overrides={status: "none"}), [kernel(status=status)])[0] == [0.0]


@pytest.mark.parametrize("status", [s for s in Status if s.value not in ("policy", "integrity", "fault")])
def test_no_other_status_is(status):
    _, (info,) = play(AntiHack(fake(), cost="minus_one"), [kernel(status=status)])
    assert not info["hack"]


def test_a_hack_never_earns_more_than_the_recipe_pays():
    env = AntiHack(MilestoneReward(fake()), cost="zero")
    assert play(env, [kernel(status="policy")])[0] == [-1.0]


def test_the_end_of_an_episode():
    env = AntiHack(fake(), cost="minus_one_end")
    env.reset()
    observation, reward, terminated, truncated, info = env.step(kernel(status="integrity"))
    assert (reward, terminated, truncated, info["turns_left"]) == (-1.0, True, False, 0)
    assert observation["turns_left"] == 0
    assert observation in env.observation_space
    with pytest.raises(gym.error.ResetNeeded, match="AntiHack ended the episode"):
        env.step(GOOD)
    observation, info = env.reset()
    assert (observation["turns_left"], info["turns_left"]) == (4, 4)
    assert env.step(GOOD)[1] == 2.3


def test_the_end_reaches_the_observation_inside_another_wrapper():
    env = HistoryPrompt(AntiHack(fake(), cost="zero_end"))
    env.reset()
    assert env.step(kernel(status="integrity"))[0]["turns_left"] == 0


def test_statistics():
    env = guarded(HARD, overrides={"policy": "zero_end"}, cost="zero")
    _, info = env.reset()
    assert math.isnan(info["hack_rate"])
    env.step(GOOD)
    env.step(kernel(status="policy"))
    clean = AntiHack(fake())
    _, infos = play(clean, [GOOD, kernel(status="policy"), BAD, FAULT])
    assert [info["hack_rate"] for info in infos] == [0.0, 0.5, 1 / 3, 1 / 3]
    assert (clean.turns, clean.caught, clean.ended) == (3, 1, 0)
    assert (env.turns, env.caught, env.ended, dict(env.by_id)) == (2, 2, 1, {"A2": 2, "policy": 1})


def test_a_fault_is_not_looked_at():
    env = AntiHack(Findings(fake(), HARD), cost="minus_one_end")
    env.reset()
    _, reward, terminated, truncated, info = env.step(FAULT)
    assert (reward, terminated, truncated, info["hack"]) == (0.0, False, True, False)
    assert env.turns == 0


def test_the_parts_of_a_reward_are_taken_too():
    env = AntiHack(TritonRLReward(Findings(fake(), HARD)), cost="minus_one")
    _, (info,) = play(env, [GOOD])
    assert (info["plan_reward"], info["code_reward"]) == (-1.0, -1.0)


def test_a_guard_that_would_see_nothing_is_told():
    env = AntiHack(ScriptedEnv([{"score": 1.0}]))
    env.reset()
    with pytest.raises(InvalidOptionError, match=r"AntiHack reads info\['evaluation'\]"):
        env.step(0)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"cost": "minus_two"}, UnknownNameError, "minus_one"),
        ({"overrides": {"A2": "free"}}, UnknownNameError, "none"),
        ({"overrides": {"copy": "zero"}}, InvalidOptionError, "'copy' is no id"),
        ({"overrides": {"correct": "zero"}}, InvalidOptionError, "policy, integrity"),
        ({"severities": ["harsh"]}, UnknownNameError, "hard"),
        ({"severities": "hard"}, InvalidOptionError, r"\['hard'\]"),
        ({"severities": 5}, InvalidOptionError, "hard, soft, note, got 5"),
        ({"overrides": "A2"}, InvalidOptionError, "a dict of ids and costs, got 'A2'"),
    ],
)
def test_wrong_arguments(arguments, error, said):
    with pytest.raises(error, match=said):
        AntiHack(fake(), **arguments)
