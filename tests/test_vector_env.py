"""`KernelVectorEnv`: what N single environments give, from one process and one pool."""

import json
import math
import threading
import time
from concurrent.futures import Future

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym_env import pools
from kernelgym_env.batching import stack_infos
from kernelgym_env.env import STOP, KernelEnv
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.pools.fake import FakePool, fake_evaluation
from kernelgym_env.pools.simulated import SimulatedConfig, SimulatedPool
from kernelgym_env.registration import environment_ids
from kernelgym_env.vector_env import KernelVectorEnv

FAKE = "KernelGym/Fake-v0"
TASKS = ["KernelGym/RowSum", "KernelGym/ColumnMax", "KernelGym/RowSoftmax"]
GOOD = "# fake: status=correct speedup=2.0 coverage=0.5\nclass ModelNew: ..."
BAD = "# fake: status=wrong\nclass ModelNew: ..."
FAULT = "# fake: status=fault\nclass ModelNew: ..."
MODES = list(AutoresetMode)
COUNT = 3

ACTIONS = st.sampled_from(
    [GOOD, BAD, FAULT, STOP, "no code", "```python\nclass ModelNew: ...\n```", "class ModelNew: x = 1"]
    + [f"# simulate: schedule={name}\nclass ModelNew: ..." for name in ("naive", "tiled", "fused")]
)
STEPS = st.lists(st.lists(ACTIONS, min_size=COUNT, max_size=COUNT), min_size=1, max_size=7)


def same(one, two):
    """Equal in every type, dtype, key and value, where NaN equals NaN."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, np.ndarray):
        if one.dtype == object:
            return two.dtype == object and one.shape == two.shape and all(map(same, one.tolist(), two.tolist()))
        return one.dtype == two.dtype and np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
    if isinstance(one, float):
        return one == two or (math.isnan(one) and math.isnan(two))
    return one == two


def fake(count=2, **options):
    return KernelVectorEnv(count, **{"task": "KernelGym/ElementwiseChain", "pool": "fake", **options})


def reset_mask(*places, count=2):
    mask = np.zeros(count, dtype=bool)
    mask[list(places)] = True
    return {"reset_mask": mask}


# the same as single environments


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["fake", "simulated"])
@given(steps=STEPS, turns=st.integers(1, 3), seed=st.integers(0, 50))
@settings(max_examples=25)
def test_it_gives_what_gymnasium_s_vector_gives(kind, mode, steps, turns, seed):
    config = SimulatedConfig(fault=0.2, hack_probability=0.2)
    for side in ("one", "two"):
        pools.register(f"{side}-{kind}", FakePool if kind == "fake" else lambda: SimulatedPool(config, seed=3))
    options = {"task": TASKS, "turns": turns}
    ours = KernelVectorEnv(COUNT, autoreset_mode=mode, pool=f"one-{kind}", **options)
    theirs = SyncVectorEnv([lambda: KernelEnv(pool=f"two-{kind}", **options)] * COUNT, autoreset_mode=mode)
    assert same(ours.reset(seed=seed), theirs.reset(seed=seed))
    assert ours.np_random_seed == theirs.np_random_seed
    for actions in steps:
        one, two = ours.step(actions), theirs.step(actions)
        assert same(one, two)
        assert one[0] in ours.observation_space
        ended = one[2] | one[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            reset = {"reset_mask": ended, "task": TASKS[0]}
            assert same(ours.reset(options=reset), theirs.reset(options=dict(reset)))
            assert reset["reset_mask"] is ended  # gymnasium takes it out of the caller's dict
    assert same(ours.reset(seed=[1, None, 2]), theirs.reset(seed=[1, None, 2]))
    ours.close()
    theirs.close()


@pytest.mark.parametrize("mode", MODES)
@given(steps=st.lists(st.tuples(st.integers(0, COUNT - 1), ACTIONS), min_size=1, max_size=15), seed=st.integers(0, 50))
@settings(max_examples=25)
def test_turns_in_their_own_time_are_those_of_single_environments(mode, steps, seed):
    for side in ("one", "two"):
        pools.register(f"{side}-simulated", lambda: SimulatedPool(SimulatedConfig(fault=0.2), seed=3))
    envs = KernelVectorEnv(COUNT, autoreset_mode=mode, pool="one-simulated", task=TASKS, turns=2)
    singles = [KernelEnv(pool="two-simulated", task=TASKS, turns=2) for _ in range(COUNT)]
    envs.reset(seed=seed)
    for place, single in enumerate(singles):
        single.reset(seed=seed + place)
    for place, action in steps:
        if singles[place].episode.ended:
            expected_start = singles[place].reset()
            if mode is AutoresetMode.NEXT_STEP:
                envs.submit(place, "ignored")
                (turned,) = envs.collect()
                assert (turned.reward, turned.terminated, turned.truncated) == (0.0, False, False)
                assert same((turned.observation, turned.info), expected_start)
            elif mode is AutoresetMode.DISABLED:
                with pytest.raises(gym.error.ResetNeeded, match=f"Episode {place} is over.*'Disabled'"):
                    envs.submit(place, action)
                envs.reset(options=reset_mask(place, count=COUNT))
        envs.submit(place, action)
        (turned,) = envs.collect()
        observation, reward, terminated, truncated, info = singles[place].step(action)
        assert (turned.index, turned.reward, turned.terminated, turned.truncated) == (
            place,
            reward,
            terminated,
            truncated,
        )
        if mode is AutoresetMode.SAME_STEP and (terminated or truncated):
            assert same(turned.info["final_obs"], observation)
            assert same(turned.info["final_info"], info)
            assert turned.observation["turn"] == 0
            assert turned.info["status"] == ""
        else:
            assert same(turned.observation, observation)
            assert same(turned.info, info)


def test_all_submissions_of_a_step_are_out_before_the_first_is_awaited():
    pools.register("slow", lambda: SimulatedPool(SimulatedConfig(latency_s=0.3, lanes=8)))
    envs = fake(8, pool="slow")
    envs.reset(seed=0)
    start = time.monotonic()
    envs.step([f"# simulate: schedule=naive sample={i}\nclass ModelNew: ..." for i in range(8)])
    assert 0.3 <= time.monotonic() - start < 1.5
    pools.get("slow").close()


# gymnasium's interface


@pytest.mark.parametrize("mode", [None, "vector_entry_point"])
def test_make_vec_takes_it(mode):
    envs = gym.make_vec("KernelGym/RowSoftmax-v0", num_envs=3, vectorization_mode=mode, pool="fake", turns=2)
    assert type(envs) is KernelVectorEnv
    assert (envs.num_envs, envs.turns) == (3, 2)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.single_action_space == KernelEnv(pool="fake").action_space
    assert envs.reset(seed=0)[1]["task_id"].tolist() == ["KernelGym/RowSoftmax"] * 3
    assert repr(envs) == "KernelVectorEnv(KernelGym/RowSoftmax-v0, num_envs=3)"


def test_every_id_has_it():
    assert {gym.spec(env_id).vector_entry_point for env_id in environment_ids()} == {
        "kernelgym_env.vector_env:KernelVectorEnv"
    }


def test_it_is_made_again_from_its_spec_as_json():
    envs = gym.make_vec(FAKE, num_envs=2, autoreset_mode="SameStep", turns=3)
    again = gym.make_vec(EnvSpec.from_json(envs.spec.to_json()))
    assert (type(again), again.num_envs, again.turns) == (KernelVectorEnv, 2, 3)
    assert again.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert again.spec == envs.spec


def test_the_class_s_metadata_stays_as_it_is():
    fake(autoreset_mode="Disabled")
    assert "autoreset_mode" not in KernelVectorEnv.metadata
    assert "autoreset_mode" not in KernelEnv.metadata


def test_gymnasium_s_vector_wrappers_fit():
    envs = gym.wrappers.vector.RecordEpisodeStatistics(gym.make_vec(FAKE, num_envs=2, turns=1))
    envs = gym.wrappers.vector.DictInfoToList(envs)
    envs.reset(seed=0)
    infos = envs.step([GOOD, BAD])[4]
    assert [info["episode"]["r"] for info in infos] == [2.3, 0.0]
    assert [info["status"] for info in infos] == ["correct", "wrong"]


def test_observations_and_samples_are_in_their_spaces():
    envs = fake()
    envs.action_space.seed(0)
    observation, _ = envs.reset(seed=0)
    assert observation in envs.observation_space
    assert envs.action_space.sample() in envs.action_space
    assert envs.step(envs.action_space.sample())[0] in envs.observation_space


def test_results_do_not_change_later():
    envs = fake()
    observation, _ = envs.reset(seed=0)
    first = envs.step([GOOD, BAD])
    kept = json.dumps([first[1].tolist(), first[0]["feedback"], first[0]["turn"].tolist()])
    envs.step([BAD, GOOD])
    assert json.dumps([first[1].tolist(), first[0]["feedback"], first[0]["turn"].tolist()]) == kept
    assert observation["turn"].tolist() == [0, 0]


def test_rendering():
    envs = fake(render_mode="ansi")
    with pytest.raises(gym.error.ResetNeeded):
        envs.render()
    envs.reset()
    envs.step([GOOD, BAD])
    texts = envs.render()
    assert "2.00x" in texts[0] and "wrong" in texts[1]
    pictures = fake(render_mode="rgb_array")
    pictures.reset()
    assert [picture.dtype for picture in pictures.render()] == [np.uint8, np.uint8]
    silent = fake()
    with pytest.warns(UserWarning, match="render_mode"):
        assert silent.render() is None


def test_human_prints_each_turn(capsys):
    envs = fake(render_mode="human")
    envs.reset()
    envs.step([GOOD, BAD])
    assert envs.render() is None
    assert capsys.readouterr().out.count("turn 1 of 4") == 2


def test_closing_cancels_what_waits_and_leaves_the_pool():
    pools.register("held", SimulatedPool)
    pool = pools.get("held")
    pool.pause()
    envs = fake(pool="held")
    envs.reset()
    envs.submit(0, BAD)
    envs.close()
    envs.close()
    pool.resume()
    assert not pool.closed
    assert pool.stats()["ended"] == {}
    for call in (envs.reset, envs.collect, lambda: envs.step([GOOD, GOOD]), lambda: envs.submit(0, GOOD)):
        with pytest.raises(gym.error.ClosedEnvironmentError, match="gym.make_vec"):
            call()


# mistakes


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2", None])
def test_numbers_of_episodes_that_cannot_be(count):
    with pytest.raises(InvalidOptionError, match="num_envs must be"):
        fake(count)


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"turn": 3}, "Unknown option of KernelVectorEnv 'turn'. Did you mean 'turns'"),
        ({"autoreset_mode": "Samestep"}, "autoreset_mode 'Samestep'. Did you mean 'SameStep'"),
        ({"pool": "locale"}, "locale.*local"),
    ],
)
def test_unknown_names(option, complaint):
    with pytest.raises(UnknownNameError, match=complaint):
        fake(**option)


def test_a_time_limit_is_refused_with_what_to_do():
    with pytest.raises(InvalidOptionError, match="max_episode_steps=3.*vectorization_mode='sync'"):
        gym.make_vec(FAKE, num_envs=2, max_episode_steps=3)


@pytest.mark.parametrize("actions", [[GOOD], [GOOD] * 3, GOOD, b"xy", None, 3])
def test_actions_of_another_number_or_kind(actions):
    envs = fake()
    envs.reset()
    with pytest.raises(gym.error.InvalidAction, match="Actions are a list of 2 texts"):
        envs.step(actions)


def test_an_action_that_is_no_text_leaves_every_episode_where_it_was():
    pools.register("one-fake", FakePool)
    envs = fake(pool="one-fake")
    envs.reset()
    with pytest.raises(gym.error.InvalidAction, match="An action is text"):
        envs.step([GOOD, 3])
    assert [episode.turn for episode in envs.episodes] == [0, 0]
    assert pools.get("one-fake").stats()["ended"] == {}


@pytest.mark.parametrize("seed", [[1], [1, 2, 3], []])
def test_seeds_of_another_number(seed):
    with pytest.raises(InvalidOptionError, match="one of them for each of the 2"):
        fake().reset(seed=seed)


@pytest.mark.parametrize("mask", [[True, False], np.array([1, 0]), np.array([True]), np.array([False, False]), None])
def test_masks_that_cannot_be(mask):
    envs = fake()
    envs.reset()
    with pytest.raises(InvalidOptionError, match="reset_mask"):
        envs.reset(options={"reset_mask": mask})


def test_what_was_never_reset():
    envs = fake()
    for call in (lambda: envs.step([GOOD, GOOD]), lambda: envs.submit(0, GOOD), lambda: envs.clone_state(0)):
        with pytest.raises(gym.error.ResetNeeded, match="Episode 0 has not begun"):
            call()
    with pytest.raises(gym.error.ResetNeeded, match="Episode 1 has not begun"):
        envs.reset(options=reset_mask(0))


def test_disabled_names_the_episode_that_is_over():
    envs = fake(autoreset_mode=AutoresetMode.DISABLED)
    envs.reset()
    envs.step([GOOD, STOP])
    with pytest.raises(gym.error.ResetNeeded, match="Episode 1 is over.*reset_mask"):
        envs.step([GOOD, GOOD])
    assert envs.episodes[0].turn == 1
    observation, infos = envs.reset(options={**reset_mask(1), "history": [{"action": "a", "feedback": "f"}]})
    assert infos["_task_id"].tolist() == [False, True]
    assert observation["turn"].tolist() == [1, 0]
    assert [len(turns) for turns in observation["history"]] == [1, 1]


# submit and collect


def test_turns_are_collected_as_they_end():
    held: dict[str, Future] = {}

    class HeldPool(FakePool):
        def submit(self, submission, priority=0):
            held[submission.source] = Future()
            return held[submission.source]

    pools.register("held", HeldPool)
    envs = fake(3, pool="held")
    envs.reset(seed=0)
    sources = [f"class ModelNew: x = {place}" for place in range(3)]
    for place, source in enumerate(sources):
        envs.submit(place, source)
    assert envs.pending == (0, 1, 2)
    assert envs.collect(timeout=0) == []
    submission = envs._submission(envs._reached(0), "class ModelNew: ...")

    def answer(place):
        held[sources[place]].set_result(fake_evaluation(submission))

    answer(2)
    answer(0)
    assert [turned.index for turned in envs.collect()] == [2, 0]
    assert envs.pending == (1,)
    for call in (envs.reset, lambda: envs.step(sources), lambda: envs.submit(1, GOOD)):
        with pytest.raises(gym.error.AlreadyPendingCallError, match=r"\[1\].*collect"):
            call()
    envs.reset(options=reset_mask(0, 2, count=3))  # the others may go on
    threading.Timer(0.1, answer, [1]).start()
    assert [turned.index for turned in envs.collect(timeout=30)] == [1]
    with pytest.raises(gym.error.NoAsyncCallError, match="submit"):
        envs.collect()


def test_a_pool_that_breaks_loses_no_episode():
    class BrokenPool(FakePool):
        def submit(self, submission, priority=0):
            future = super().submit(submission)
            if "broken" in submission.source:
                future = Future()
                future.set_exception(OSError("a bug"))
            return future

    pools.register("broken", BrokenPool)
    envs = fake(pool="broken")
    envs.reset(seed=0)
    broken = "class ModelNew: broken = 1"
    with pytest.raises(OSError, match="a bug"):
        envs.step([GOOD, broken])
    assert [episode.turn for episode in envs.episodes] == [0, 0]
    envs.submit(0, GOOD)
    envs.submit(1, broken)
    assert [turned.index for turned in envs.collect()] == [0]
    with pytest.raises(OSError, match="a bug"):
        envs.collect()
    assert envs.pending == ()
    assert envs.step([GOOD, GOOD])[0]["turn"].tolist() == [2, 1]


def test_a_pool_that_is_closed_meanwhile_is_a_fault():
    pools.register("closing", SimulatedPool)
    pool = pools.get("closing")
    pool.pause()
    envs = fake(pool="closing")
    envs.reset(seed=0)
    envs.submit(0, BAD)
    pool.close()
    (turned,) = envs.collect()
    assert (turned.truncated, turned.terminated, turned.info["valid"]) == (True, False, False)


@pytest.mark.parametrize("timeout", [-1, math.nan, "1", True])
def test_timeouts_that_cannot_be(timeout):
    envs = fake()
    envs.reset()
    envs.submit(0, GOOD)
    with pytest.raises(InvalidOptionError, match="timeout must be"):
        envs.collect(timeout)


@pytest.mark.parametrize("place", [-1, 2, 1.0, "0", True, None])
def test_places_that_cannot_be(place):
    envs = fake()
    envs.reset()
    with pytest.raises(InvalidOptionError, match="index must be a whole number from 0 to 1"):
        envs.submit(place, GOOD)


def test_a_state_moves_between_environments():
    envs, single = fake(turns=3), KernelEnv(task="KernelGym/ElementwiseChain", pool="fake", turns=3)
    envs.reset(seed=0)
    envs.step([GOOD, BAD])
    single.restore_state(json.loads(json.dumps(envs.clone_state(0))))
    assert single.episode == envs.episodes[0]
    observation, info = envs.restore_state(1, single.clone_state())
    assert (info["best_speedup"], observation["turn"]) == (2.0, 1)
    with pytest.raises(InvalidOptionError, match="3 turns, this environment 4"):
        fake().restore_state(0, single.clone_state())


# many


def test_a_step_of_many_is_not_quadratic():
    def seconds(count):
        envs = fake(count)
        envs.reset(seed=0)
        actions = [f"class ModelNew: x = {place}" for place in range(count)]
        best = math.inf
        for _ in range(3):
            start = time.process_time()
            envs.step(actions)
            best = min(best, time.process_time() - start)
        return best

    few, many = seconds(100), seconds(1000)
    assert many < 30 * few  # ten times where it is linear, a hundred where it is quadratic


def test_infos_of_other_types_are_stacked_without_loss():
    stacked = stack_infos([(0, {"x": 1, "y": None, "z": {}}), (1, {"x": 0.5, "y": {"a": 1}, "z": {"b": [1]}})], 3)
    assert stacked["x"].tolist() == [1, 0.5, None]
    assert stacked["y"].tolist() == [None, {"a": 1}, None]
    assert stacked["z"]["b"].tolist() == [None, [1], None]
    assert stacked["_z"].tolist() == [True, True, False]
    assert stack_infos([], 2) == {}
