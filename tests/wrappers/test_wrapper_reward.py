import math

import gymnasium as gym
import pytest
from wrapper_helpers import BAD, FAULT, GOOD, ScriptedEnv, fake, kernel, play

from kernelgym_env import rewards
from kernelgym_env.env import STOP
from kernelgym_env.errors import InvalidOptionError, KernelGymError, UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.wrappers import (
    CudaL1Reward,
    DrKernelReward,
    ImprovementReward,
    KernelGymTiersReward,
    KevinReward,
    LogSpeedupReward,
    MakoraReward,
    MilestoneReward,
    RecipeReward,
    RooflineReward,
    TritonRLReward,
)

# class, its arguments, the function with the same options
PAIRS = [
    (KevinReward, {}, rewards.kevin, {}),
    (KevinReward, {"weight": 1.0, "cap": 1.5}, rewards.kevin, {"weight": 1.0, "cap": 1.5}),
    (MilestoneReward, {}, rewards.milestone, {}),
    (MilestoneReward, {"failed": 0.0}, rewards.milestone, {"failed": 0.0}),
    (CudaL1Reward, {"decimals": 2}, rewards.cuda_l1, {"decimals": 2}),
    (DrKernelReward, {"form": "released"}, rewards.dr_kernel, {"form": "released"}),
    (DrKernelReward, {"cap": None}, rewards.dr_kernel, {"cap": math.inf}),
    (MakoraReward, {"baseline": "eager"}, rewards.makora, {"baseline": "eager"}),
    (KernelGymTiersReward, {}, rewards.kernelgym_tiers, {}),
    (LogSpeedupReward, {"base": 3.0}, rewards.log_speedup, {"base": 3.0}),
    (RooflineReward, {}, rewards.roofline_fraction, {}),
    (ImprovementReward, {"score": "cuda_l1"}, rewards.cuda_l1, {}),
]
STATUSES = [status for status in Status if status is not Status.FAULT]


@pytest.mark.parametrize(("wrapper", "arguments", "function", "options"), PAIRS)
@pytest.mark.parametrize("status", STATUSES)
def test_the_reward_and_the_score_are_the_function_s_value(wrapper, arguments, function, options, status):
    env = wrapper(fake(), **arguments)
    env.reset()
    _, reward, terminated, truncated, info = env.step(kernel(status=status, speedup=2.345, coverage=0.75))
    assert reward == info["score"] == function(Evaluation.from_dict(info["evaluation"]), **options)
    assert type(reward) is float
    assert (terminated, truncated) == (False, False)


@pytest.mark.parametrize("wrapper", [MilestoneReward, KernelGymTiersReward, LogSpeedupReward])
def test_faults_and_stops_are_not_paid_as_failures(wrapper):
    assert play(wrapper(fake()), [BAD])[0][0] < 0
    for action in (FAULT, STOP):
        (reward,), (info,) = play(wrapper(fake()), [action])
        assert (reward, info["score"]) == (0.0, 0.0)


def test_milestones_come_from_times():
    env = MilestoneReward(fake())
    assert play(env, [kernel(1.05), kernel(1.06)])[0] == [1.0, 2.0]  # 5% less time, not 1.05x


def test_tritonrl_gives_two_rewards():
    env = TritonRLReward(fake(), alpha=0.5, cap=2.0)
    _, info = env.reset()
    assert (info["plan_reward"], info["code_reward"]) == (0.0, 0.0)
    earned, infos = play(env, [kernel(3.0), BAD, FAULT])
    assert earned == [2.0, 0.0, 0.0]
    assert [(info["plan_reward"], info["code_reward"]) for info in infos] == [(2.0, 1.0), (0.0, 0.0), (0.0, 0.0)]


def test_improvements_add_up_to_the_best_and_start_anew_in_each_episode():
    env = ImprovementReward(fake(turns=5))
    for _ in range(2):
        earned, infos = play(env, [kernel(1.0), BAD, kernel(0.5), kernel(2.0), kernel(2.0)])
        assert earned == pytest.approx([1.3, 0, 0, 1.0, 0])
        assert sum(earned) == pytest.approx(infos[-1]["best_score"]) == pytest.approx(2.3)


def test_improvement_over_negative_scores_starts_there():
    env = ImprovementReward(fake(), score="milestone", start=-1.0)
    assert play(env, [BAD, kernel(1.0), kernel(status="task_invalid"), kernel(2.0)])[0] == [0.0, 2.0, 0.0, 1.0]


def test_a_stack_may_be_built_around_another_reward():
    inner = gym.wrappers.TransformReward
    earned, infos = play(MilestoneReward(fake()), [GOOD])
    assert earned == [2.0]
    assert play(inner(MilestoneReward(fake()), lambda reward: 10 * reward), [GOOD])[0] == [20.0]


def test_an_environment_without_evaluations_is_told():
    env = KevinReward(ScriptedEnv([{"score": 1.0}]))
    env.reset()
    with pytest.raises(InvalidOptionError, match=r"KevinReward reads info\['evaluation'\]"):
        env.step(0)


@pytest.mark.parametrize(
    ("wrapper", "arguments"),
    [
        (KevinReward, {"weight": -1}),
        (KevinReward, {"cap": 0}),
        (KevinReward, {"cap": "high"}),
        (MilestoneReward, {"levels": [[2.0, 0.05]]}),
        (MilestoneReward, {"levels": [[2.0, 0.05, ["eagre"]]]}),
        (MilestoneReward, {"correct": -2.0}),
        (CudaL1Reward, {"decimals": -1}),
        (DrKernelReward, {"form": "papers"}),
        (DrKernelReward, {"cap": -1}),
        (MakoraReward, {"baseline": "cudnn"}),
        (TritonRLReward, {"alpha": -0.1}),
        (TritonRLReward, {"cap": 0}),
        (TritonRLReward, {"cap": "high"}),
        (KernelGymTiersReward, {"tiers": [1.0]}),
        (LogSpeedupReward, {"base": 1.0}),
        (LogSpeedupReward, {"failed": 0.0}),
        (ImprovementReward, {"score": "kelvin"}),
        (ImprovementReward, {"score": "improvement"}),
        (ImprovementReward, {"start": True}),
    ],
)
def test_wrong_arguments_raise_in_the_constructor(wrapper, arguments):
    with pytest.raises(KernelGymError, match=r"got|Unknown|wrong type"):
        wrapper(fake(), **arguments)


def test_a_misspelt_score_is_guessed():
    with pytest.raises(UnknownNameError, match="Did you mean 'kevin'"):
        ImprovementReward(fake(), score="kelvin")


def test_the_base_class_asks_for_pay():
    env = RecipeReward(fake())
    env.reset()
    with pytest.raises(NotImplementedError, match="must define pay"):
        env.step(GOOD)
