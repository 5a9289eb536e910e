import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wrapper_helpers import BAD, FAULT, ScriptedEnv, fake, kernel, play

from kernelgym_env.env import STOP
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.wrappers import CudaL1Reward, RunningNormalizeClip, TurnReturns

GROUP = (1.0, 1.1, 0.9, 1.0, 18.0)
Z = (-0.499978, -0.485273, -0.514684, -0.499978, 1.999914)


def scripted(rewards, infos=None, **options):
    infos = [{"task_id": "t"}] * len(rewards) if infos is None else infos
    return RunningNormalizeClip(ScriptedEnv(infos, rewards), **options)


def run(env):
    env.reset()
    return [env.step(0) for _ in range(len(env.unwrapped.infos))]


def test_the_published_example_within_a_group():
    """Learnt from the whole group and frozen, the wrapper gives the group's own z-scores."""
    env = CudaL1Reward(fake(turns=5))
    env = RunningNormalizeClip(env, scope="group", clip=None, warmup=0)
    play(env, [kernel(speedup) for speedup in GROUP])
    env.freeze()
    earned, _ = play(env, [kernel(speedup) for speedup in GROUP])
    assert earned == pytest.approx(Z, abs=1e-6)


def test_the_last_of_a_group_is_measured_against_the_whole_group():
    assert run(scripted(GROUP, scope="group", clip=None))[-1][1] == pytest.approx(Z[-1], abs=1e-6)
    assert run(scripted(GROUP, scope="group"))[-1][1] == 1.5


def test_in_a_group_the_z_score_is_bounded_by_the_size():
    for n in (2, 3, 4, 5):
        z = run(scripted([0.0] * (n - 1) + [1000.0], scope="group", clip=None, warmup=0))[-1][1]
        assert z == pytest.approx(math.sqrt(n - 1))


def test_a_running_score_is_measured_against_what_was_before():
    z = run(scripted(GROUP, clip=None))[-1][1]
    before = np.array(GROUP[:-1])
    assert z == pytest.approx((18.0 - before.mean()) / before.std())
    assert z > 200
    assert run(scripted(GROUP))[-1][1] == 1.5


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=12), st.sampled_from([0, 1]))
def test_statistics_are_numpy_s(values, ddof):
    steps = run(scripted(values, clip=None, warmup=3, ddof=ddof))
    for index, (value, step) in enumerate(zip(values, steps, strict=True)):
        before = np.array(values[:index])
        expected = 0.0
        if index >= 3 and before.std(ddof=ddof) > 1e-6:
            expected = (value - before.mean()) / before.std(ddof=ddof)
            assert step[1] == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert step[4]["norm_count"] == index


def test_warm_up_and_flat_statistics_give_zero():
    assert [step[1] for step in run(scripted([1.0, 5.0, 2.0, 7.0, 100.0], warmup=4))] == [0, 0, 0, 0, 1.5]
    assert [step[1] for step in run(scripted([1.3] * 6, warmup=0))] == [0.0] * 6
    assert run(scripted([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2], warmup=0))[-1][1] == 0.0


def test_the_score_follows_and_the_raw_one_is_kept():
    env = RunningNormalizeClip(fake(), warmup=0)
    _, info = env.reset()
    assert (info["raw_score"], info["norm_count"]) == (0.0, 0)
    assert math.isnan(info["norm_mean"])
    earned, infos = play(env, [kernel(1.0), kernel(2.0), kernel(9.0)])
    assert [info["score"] for info in infos] == earned == [0.0, 0.0, 1.5]
    assert [info["raw_score"] for info in infos] == [1.3, 2.3, 9.3]
    assert [type(value) for value in earned] == [float] * 3


def test_turns_that_say_nothing_are_excluded():
    env = RunningNormalizeClip(fake(), warmup=0)
    for actions in ([kernel(1.0), FAULT], [kernel(2.0), kernel(status="task_invalid")], [STOP]):
        earned, _ = play(env, actions)
        assert earned[-1] == 0.0
    assert env.state_dict()["moments"] == {"": [2, pytest.approx(1.8), pytest.approx(0.5)]}


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_nothing_leaks_across_episodes(end):
    """What gymnasium's NormalizeReward leaks: equal episodes get larger and larger rewards."""
    env = RunningNormalizeClip(ScriptedEnv([{}] * 2, [1.0, 2.0], end=end), clip=None, warmup=0)
    runs = [[step[1] for step in run(env)] for _ in range(20)]
    assert runs[10:] == pytest.approx(np.array(runs[10:11] * 10), abs=0.1)
    env.freeze()
    assert [step[1] for step in run(env)] == [step[1] for step in run(env)]
    once = RunningNormalizeClip(ScriptedEnv([{}] * 4, [1.0, 2.0, 1.0, 2.0]), clip=None, warmup=0)
    assert [step[1] for step in run(once)] == runs[0] + runs[1]  # the ends of episodes make no difference


def test_groups_do_not_mix():
    infos = [{"task_id": name} for name in "aabb"]
    assert [step[1] for step in run(scripted([0, 1, 100, 101], infos, scope="group", warmup=0))] == [0, 1, 0, 1]
    infos = [{"task_id": "a", "group_id": group} for group in (1, 1, 2, 2)]
    assert [step[1] for step in run(scripted([0, 1, 100, 101], infos, scope="group", warmup=0))] == [0, 1, 0, 1]


def test_the_state_is_saved_and_restored():
    env = scripted(GROUP, clip=None)
    run(env)
    state = json.loads(json.dumps(env.state_dict()))
    other = scripted(GROUP, clip=None)
    other.load_state_dict(state)
    assert [step[1] for step in run(other)] == [step[1] for step in run(env)]
    env.forget()
    assert env.state_dict()["moments"] == {}


def test_frozen_statistics_stand_still():
    env = scripted(GROUP)
    run(env)
    env.freeze()
    state = env.state_dict()
    run(env)
    assert env.state_dict() == state
    env.unfreeze()
    run(env)
    assert env.state_dict()["moments"][""][0] == 10
    assert RunningNormalizeClip(fake(), frozen=True).frozen


@pytest.mark.parametrize(
    "state", [{}, {"scope": "running"}, {"scope": "running", "frozen": 0, "moments": {"": [1]}}, 3]
)
def test_a_state_of_another_form_is_refused(state):
    with pytest.raises(InvalidOptionError, match="Not a state"):
        RunningNormalizeClip(fake()).load_state_dict(state)


def test_a_state_of_another_scope_is_refused():
    with pytest.raises(InvalidOptionError, match="'group'.*'running'"):
        RunningNormalizeClip(fake()).load_state_dict({"scope": "group", "frozen": False, "moments": {}})


def test_returns_outside_see_the_normalised_scores():
    env = TurnReturns(RunningNormalizeClip(fake(turns=2), warmup=0), gamma=1.0)
    play(env, [kernel(1.0), kernel(2.0)])
    earned, infos = play(env, [BAD, kernel(9.0)])
    assert infos[-1]["turn_returns"].tolist() == [sum(earned), earned[-1]]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"clip": 0}, InvalidOptionError, "clip must be"),
        ({"scope": "groups"}, UnknownNameError, "group"),
        ({"warmup": -1}, InvalidOptionError, "warmup must be"),
        ({"warmup": 2.5}, InvalidOptionError, "warmup must be"),
        ({"ddof": 2}, InvalidOptionError, "ddof must be"),
        ({"frozen": 1}, InvalidOptionError, "frozen must be"),
    ],
)
def test_wrong_arguments(arguments, error, said):
    with pytest.raises(error, match=said):
        RunningNormalizeClip(fake(), **arguments)


@pytest.mark.parametrize("scope", ["running", "group"])
@pytest.mark.parametrize(("odd", "paid"), [(math.nan, 0.0), (math.inf, 1.5), (-math.inf, -1.5)])
def test_a_reward_that_is_not_finite_leaves_the_statistics_alone(scope, odd, paid):
    """In a mean it would stay for good, and NaN was paid as much as the clip allows."""
    rewards = [1.0, 2.0, 3.0, 1.0]
    steps = run(scripted([*rewards, odd, 5.0], scope=scope))
    without = run(scripted([*rewards, 5.0], scope=scope))
    assert steps[4][1] == paid
    assert steps[5][1] == without[4][1] > 0
    assert steps[5][4]["norm_mean"] == without[4][4]["norm_mean"]


@pytest.mark.parametrize("moments", [[-1, 0.0, 0.0], [1.5, 0.0, 0.0], [2, math.nan, 1.0], [2, 0.0, -1.0], [2, 0.0]])
def test_a_state_that_no_rewards_give_is_refused(moments):
    state = {"scope": "running", "frozen": False, "moments": {"": moments}}
    with pytest.raises(InvalidOptionError, match="Not a state"):
        scripted([1.0]).load_state_dict(state)
    with pytest.raises(InvalidOptionError, match="Not a state"):
        scripted([1.0]).load_state_dict({"scope": "running", "frozen": "false", "moments": {}})
