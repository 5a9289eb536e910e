import json
import math
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from kernelgym_env import wrappers
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status, Timing
from kernelgym_env.recipes import Recipe, recipe, recipe_names
from kernelgym_env.rewards import REWARDS
from kernelgym_env.wrappers.order import layers

ROOT = Path(__file__).resolve().parent.parent
NAMES = recipe_names()
FAKE = "KernelGym/Fake-v0"


def reply(directive):
    return f"It is fused.\n```python\n# fake: {directive}\nclass ModelNew: ...\n```"


def play(env, directives):
    """Rewards and infos of one episode."""
    env.reset(seed=0)
    steps = [env.step(reply(directive)) for directive in directives]
    return [step[1] for step in steps], [step[4] for step in steps]


def correct(**measured):
    return Evaluation("a/b", Status.CORRECT, **measured)


# --- the data


def test_names():
    assert NAMES == ["kevin", "cuda_agent", "cuda_l1", "dr_kernel", "tritonrl", "makora"]
    with pytest.raises(UnknownNameError, match="Did you mean 'kevin'"):
        recipe("kevn")


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_plain_data_of_known_names(name):
    found = recipe(name)
    assert get_protocol(found.protocol).name == found.protocol
    assert found.library_ops in ("forbid", "gemm", "allow")
    assert all(channel.reward in REWARDS for channel in found.channels)
    assert all(layer.name in wrappers.__all__ for layer in found.layers)
    json.dumps([dict(found.options), [dict(layer.options) for layer in found.layers]], allow_nan=False)
    assert found.reproduced
    assert found.differs
    assert found.format_rules


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_the_recipe_holds(name):
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    found = recipe(name)
    assert f"## `{name}`: {found.title}" in page
    section = " ".join(page.split(f"## `{name}`")[1].split("\n## ")[0].split())
    for sentence in (*found.format_rules, *found.reproduced, *found.differs):
        assert sentence in section
    for layer in found.layers:
        assert f"`{layer.name}`" in section


def test_the_page_runs():
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "recipes.md", "exec"), {})


# --- the environments


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_gymnasium_accepts_it(name):
    env = recipe(name).make(FAKE)
    check_env(env)
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_made_again_from_its_spec_as_json(name):
    env = recipe(name).make(FAKE)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert [type(layer) for layer in layers(again)] == [type(layer) for layer in layers(env)]
    assert again.spec.additional_wrappers == env.spec.additional_wrappers
    assert again.unwrapped.turns == env.unwrapped.turns == recipe(name).options["turns"]


@pytest.mark.parametrize("name", NAMES)
def test_several_at_once(name):
    envs = gym.make_vec(recipe(name).spec(FAKE), num_envs=2, vectorization_mode="sync")
    envs.reset(seed=0)
    _, rewards, terminated, _, infos = envs.step([reply("speedup=2"), reply("status=wrong")])
    assert rewards.shape == terminated.shape == (2,)
    assert infos["status"].tolist() == ["correct", "wrong"]
    envs.close()


def test_several_processes_at_once():
    options = {"shared_memory": False}
    envs = gym.make_vec(
        recipe("kevin").spec(FAKE), num_envs=2, vectorization_mode="async", vector_kwargs=options, turns=1
    )
    envs.reset(seed=0)
    _, rewards, _, _, infos = envs.step([reply("speedup=2"), reply("status=wrong")])
    envs.close()
    assert rewards.tolist() == [2.3, 0.0]
    assert infos["turn_returns"].tolist() == [[2.3], [0.0]]


def test_options_can_be_replaced():
    env = recipe("kevin").make(FAKE, turns=8, backend="cpp", library_ops="gemm")
    assert (env.unwrapped.turns, env.unwrapped.backend, env.unwrapped.library_ops) == (8, "cpp", "gemm")
    assert recipe("kevin").options["turns"] == 4
    assert recipe("kevin").make(FAKE).unwrapped.turns == 4


@pytest.mark.parametrize("name", NAMES)
def test_the_wrappers_are_as_documented_from_the_inside_out(name):
    env = recipe(name).make(FAKE)
    ours = [type(layer).__name__ for layer in layers(env) if type(layer).__module__.startswith("kernelgym_env")]
    assert ours[::-1] == [layer.name for layer in recipe(name).layers]


# --- rewards


@pytest.mark.parametrize("name", ["kevin", "dr_kernel", "tritonrl", "makora"])
@pytest.mark.parametrize("directive", ["speedup=2.5 coverage=0.7", "status=wrong", "status=policy", "status=fault"])
def test_the_environment_pays_what_the_formula_says(name, directive):
    (reward,), (info,) = play(recipe(name).make(FAKE), [directive])
    expected = recipe(name).reward(Evaluation.from_dict(info["evaluation"]))
    assert reward == pytest.approx(expected)
    assert info["score"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "evaluation", "expected"),
    [
        ("kevin", correct(speedup=1.5), 1.8),
        ("kevin", Evaluation("a/b", Status.WRONG), 0.0),
        ("cuda_l1", correct(speedup=1.118), 1.11),
        ("dr_kernel", correct(speedup=4.2, coverage=0.8615), 4.8615),
        ("dr_kernel", correct(speedup=1.02, coverage=0.00014), 2.02014),
        ("tritonrl", correct(speedup=2.5), 1.25),
        ("makora", correct(speedup_compile=1.5), 0.6681877721681662),
        ("cuda_agent", Evaluation("a/b", Status.CRASH), -1.0),
    ],
)
def test_worked_examples_of_rewards(name, evaluation, expected):
    assert recipe(name).reward(evaluation) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("times", "expected"),
    [((0.5, 10, 1), 3), ((1, 1.3, 1.06), 3), ((1, 1.3, 1.05), 2), ((1, 1.04, 2), 1), ((5, 1, 1), 1), ((0.95, 1, 1), 1)],
)
def test_milestones(times, expected):
    timings = dict(zip(("candidate", "eager", "compile"), map(Timing, times), strict=True))
    assert recipe("cuda_agent").reward(correct(times=timings)) == expected


def test_cuda_agent_is_paid_once_for_the_last_kernel():
    env = recipe("cuda_agent").make(FAKE, turns=3)
    rewards, infos = play(env, ["speedup=3", "status=wrong", "speedup=1"])
    assert rewards == [0.0, 0.0, 1.0]
    assert [info["score"] for info in infos] == [2.0, -1.0, 1.0]
    assert infos[-1]["best_speedup"] == 3.0


def test_cuda_l1_pays_clipped_z_scores_and_shows_exemplars():
    env = recipe("cuda_l1").make(FAKE)
    for speedup in (0.7, 1.0, 1.1, 0.9, 1.0):
        (reward,), (info,) = play(env, [f"speedup={speedup}"])
        assert info["raw_score"] == pytest.approx(speedup)
        assert abs(reward) <= 1.5
    observation, info = env.reset(seed=0)
    assert np.isfinite(info["exemplar_speedups"]).all()
    (reward,), (info,) = play(env, ["speedup=18"])
    assert reward == 1.5
    assert info["jump"]


def test_dr_kernel_says_with_which_probability_a_turn_is_kept():
    _, infos = play(recipe("dr_kernel").make(FAKE), ["coverage=0.35", "coverage=0.1", "status=wrong"])
    assert [info["prs_keep"] for info in infos] == pytest.approx([0.5, 0.0, 1.0])


def test_tritonrl_gives_both_rewards_and_where_they_belong():
    _, (info,) = play(recipe("tritonrl").make(FAKE), ["speedup=2.5"])
    assert (info["plan_reward"], info["code_reward"]) == (2.5, 1.0)
    assert 0 <= info["extraction"]["plan_start"] < info["extraction"]["plan_end"] <= info["extraction"]["code_start"]


def test_kevin_reports_the_returns_at_the_end():
    _, infos = play(recipe("kevin").make(FAKE, turns=3), ["status=wrong", "speedup=1.0", "speedup=1.5"])
    assert np.isnan(infos[1]["turn_returns"]).all()
    assert infos[2]["turn_returns"] == pytest.approx([0.808, 2.02, 1.8])


# --- credit


def test_kevin_credit_is_the_worked_example():
    returns, advantages = recipe("kevin").credit([[0, 1.3, 1.8], [0, 0, 0]], ["a", "a"])
    assert returns[0] == pytest.approx([0.808, 2.02, 1.8])
    assert advantages[0] == pytest.approx([0.0428, 1.457543, 1.200742], abs=1e-6)
    assert advantages[1] == pytest.approx([-0.900362] * 3, abs=1e-6)


def test_dr_kernel_credit_is_the_worked_example():
    scores = [[1 + 1.04, 1 + 1.21, 1 + 1.45], [0, 0, 0]]
    returns, advantages = recipe("dr_kernel").credit(scores, ["a", "a"])
    assert returns[0] == pytest.approx([6.70, 4.66, 2.45])
    assert advantages[0] == pytest.approx([6.70, 4.66, 2.45])  # of two, the other one is the baseline
    alone = recipe("dr_kernel").credit(scores, ["a", "b"]).advantages
    assert alone[0] == pytest.approx([6.70, 4.66, 2.45])


def test_cuda_l1_clips_before_it_compares():
    scores = np.array([[1], [1.1], [0.9], [1], [18]])
    returns, advantages = recipe("cuda_l1").credit(scores, ["a"] * 5)
    expected = np.array([-0.499978, -0.485273, -0.514684, -0.499978, 1.5])
    assert returns[:, 0] == pytest.approx(expected, abs=1e-6)
    assert advantages[:, 0] == pytest.approx((expected - expected.mean()) / expected.std(), abs=1e-5)


def test_cuda_agent_credits_the_last_score():
    returns, advantages = recipe("cuda_agent").credit([[1.0, -1.0, 3.0]], ["a"])
    assert returns.tolist() == [[3.0, 3.0, 3.0]]
    assert advantages[0] == pytest.approx([3 * 0.95**2, 3 * 0.95, 3])
    values = [[2.0, 2.0, 2.0]]
    with_critic = recipe("cuda_agent").credit([[1.0, -1.0, 3.0]], ["a"], values=values).advantages
    assert with_critic[0] == pytest.approx([0.95**2, 0.95, 1.0])


def test_masked_turns_are_in_no_return_and_no_group():
    for name in NAMES:
        scores = [[1.0, math.nan], [2.0, math.nan], [math.nan, math.nan]]
        mask = [[True, False], [True, False], [False, False]]
        returns, advantages = recipe(name).credit(scores, ["a", "a", "a"], mask=mask)
        assert np.isnan(returns[~np.array(mask)]).all()
        assert (advantages[~np.array(mask)] == 0).all()
        less = recipe(name).credit([[1.0], [2.0]], ["a", "a"])
        assert returns[:2, 0] == pytest.approx(less.returns[:, 0])
        assert advantages[:2, 0] == pytest.approx(less.advantages[:, 0])


def test_groups_do_not_mix():
    for name in NAMES:
        together = recipe(name).credit([[1.0], [3.0], [10.0], [40.0]], ["a", "a", "b", "b"]).advantages
        alone = recipe(name).credit([[1.0], [3.0]], ["a", "a"]).advantages
        assert together[:2] == pytest.approx(alone)


def test_scores_that_do_not_fit_are_named():
    with pytest.raises(InvalidOptionError, match="finite|mask"):
        recipe("kevin").credit([[math.nan]], ["a"])
    with pytest.raises(InvalidOptionError, match="keys"):
        recipe("kevin").credit([[1.0]], ["a", "b"])


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_wants_the_same_shapes(name):
    for scores in ([1.0, 2.0], 1.0, [[[1.0]]]):
        with pytest.raises(InvalidOptionError, match="scores must have"):
            recipe(name).credit(scores, ["a", "a"])
    for groups in (["a"], ["a", "b", "c"]):
        with pytest.raises(InvalidOptionError, match="the keys of the 2 trajectories"):
            recipe(name).credit([[1.0], [2.0]], groups)
    assert recipe(name).credit([[], []], ["a", "b"]).advantages.shape == (2, 0)


def test_without_a_critic_the_last_score_is_credited_across_masked_turns():
    """A critic would say what the masked turn's state is worth; without one it is not worth 0."""
    mask = [[True, False, True]]
    advantages = recipe("cuda_agent").credit([[1.0, math.nan, 3.0]], ["a"], mask=mask).advantages
    assert advantages[0] == pytest.approx([3 * 0.95**2, 0, 3])


def test_a_recipe_of_ones_own():
    base = recipe("kevin")
    own = Recipe("own", "Own", {**base.options, "turns": 2}, base.layers[1:2], base.channels, base.settings)
    assert play(own.make(FAKE), ["speedup=1", "speedup=2"])[0] == [1.3, 2.3]
