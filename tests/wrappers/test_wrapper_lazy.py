import math

import gymnasium as gym
import pytest
from wrapper_helpers import BAD, FAULT, ScriptedEnv, fake, kernel, play

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.wrappers import AntiHack, LazyOptimization, MilestoneReward, TritonRLReward


@pytest.mark.parametrize(
    ("speedup", "coverage", "lazy"),
    [
        (1.0, 0.00014, True),
        (1.19, 0.29, True),
        (1.2, 0.1, False),  # fast
        (0.5, 0.3, False),  # slow, and all its own work
        (5.0, 0.9, False),
    ],
)
def test_both_tests_must_fail(speedup, coverage, lazy):
    (reward,), (info,) = play(LazyOptimization(fake()), [kernel(speedup, coverage)])
    assert info["lazy"] is lazy
    assert reward == info["score"] == 0.3 + speedup  # only reported


@pytest.mark.parametrize(
    ("coverage", "keep"), [(0.00014, 0.0), (0.30, 0.0), (0.33, 0.3), (0.35, 0.5), (0.40, 1.0), (0.8615, 1.0)]
)
def test_keep_probabilities_are_the_published_ones(coverage, keep):
    _, (info,) = play(LazyOptimization(fake()), [kernel(1.0, coverage)])
    assert info["prs_keep"] == pytest.approx(keep, abs=1e-12)
    assert type(info["prs_keep"]) is float


def test_wrong_kernels_and_faults_are_kept_and_not_counted():
    env = LazyOptimization(fake())
    _, infos = play(env, [BAD, kernel(1.0, 0.1), kernel(2.0, 0.9), FAULT])
    assert [info["prs_keep"] for info in infos] == [1.0, 0.0, 1.0, 1.0]
    assert [info["lazy"] for info in infos] == [False, True, False, False]
    assert math.isnan(infos[0]["lazy_rate"])
    assert [info["lazy_rate"] for info in infos[1:]] == [1.0, 0.5, 0.5]
    assert (env.correct, env.lazy) == (2, 1)


def test_a_factor_scales_the_reward_and_the_score():
    (reward,), (info,) = play(LazyOptimization(fake(), factor=0.5), [kernel(1.0, 0.1)])
    assert (reward, info["score"]) == (0.65, 0.65)
    _, (info,) = play(LazyOptimization(TritonRLReward(fake()), factor=0.0), [kernel(1.0, 0.1)])
    assert (info["score"], info["plan_reward"], info["code_reward"]) == (0.0, 0.0, 0.0)


def test_a_negative_reward_is_left_alone():
    env = LazyOptimization(MilestoneReward(fake(), correct=-0.5), factor=0.0)
    assert play(env, [kernel(1.0, 0.1)])[0] == [-0.5]


class WithoutCoverage(gym.Wrapper):
    def step(self, action):
        *step, info = self.env.step(action)
        return (*step, {**info, "coverage": math.nan})


def test_without_a_coverage_nothing_is_said():
    _, (info,) = play(LazyOptimization(WithoutCoverage(fake())), [kernel(1.0, 0.1)])
    assert (info["lazy"], info["prs_keep"]) == (False, 1.0)


def test_a_guard_outside_has_the_last_word():
    env = AntiHack(LazyOptimization(fake(), factor=0.5), cost="minus_one")
    assert play(env, [kernel(1.0, 0.1), kernel(status="policy")])[0] == [0.65, -1.0]


def test_a_guard_that_would_see_nothing_is_told():
    env = LazyOptimization(ScriptedEnv([{"correct": True}]))
    env.reset()
    with pytest.raises(InvalidOptionError, match=r"reads info\['speedup'\], info\['coverage'\]"):
        env.step(0)


@pytest.mark.parametrize(
    "arguments",
    [{"margin": 0}, {"floor": -0.1}, {"floor": 1.1}, {"softness": -1}, {"factor": 2}, {"margin": "high"}],
)
def test_wrong_arguments(arguments):
    with pytest.raises(InvalidOptionError, match=f"LazyOptimization: {next(iter(arguments))} must be"):
        LazyOptimization(fake(), **arguments)
