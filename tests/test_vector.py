"""Vector environments of gymnasium's own over `KernelEnv`."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import kernelgym_env  # noqa: F401  (registers the ids)

FAKE = "KernelGym/Fake-v0"
GOOD = "# fake: status=correct speedup=2.0 coverage=0.5\nclass ModelNew: ..."
BAD = "# fake: status=wrong\nclass ModelNew: ..."
MODES = list(AutoresetMode)


def make(kind, mode, turns=2):
    options = {"autoreset_mode": mode}
    if kind == "async":
        options.update(shared_memory=False, context="spawn")
    return gym.make_vec(FAKE, num_envs=2, vectorization_mode=kind, vector_kwargs=options, turns=turns)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("mode", MODES)
def test_an_episode_in_every_autoreset_mode(kind, mode):
    envs = make(kind, mode)
    try:
        observation, info = envs.reset(seed=[1, 2])
        assert "ElementwiseChain" in observation["prompt"][0]
        observation, rewards, ends, cuts, info = envs.step([GOOD, BAD])
        assert rewards.tolist() == [2.3, 0.0]
        assert info["score"].tolist() == [2.3, 0.0]
        assert info["speedup"].dtype == np.float64
        assert np.isnan(info["speedup"][1])
        assert info["status"].tolist() == ["correct", "wrong"]
        assert info["turn_returns"].shape == (2, 2)
        assert info["evaluation"]["status"].tolist() == ["correct", "wrong"]
        assert observation["turn"].tolist() == [1, 1]
        assert observation["history"][0][0]["action"] == GOOD
        observation, rewards, ends, cuts, info = envs.step((BAD, GOOD))
        assert ends.tolist() == [True, True]
        assert cuts.tolist() == [False, False]
        if mode is AutoresetMode.SAME_STEP:
            assert observation["turn"].tolist() == [0, 0]
            assert info["final_info"]["score"].tolist() == [0.0, 2.3]
            assert info["final_obs"][1]["turn"] == 2
        elif mode is AutoresetMode.NEXT_STEP:
            observation, rewards, *_ = envs.step([GOOD, GOOD])
            assert rewards.tolist() == [0.0, 0.0]
            assert observation["turn"].tolist() == [0, 0]
        else:
            observation, info = envs.reset(options={"reset_mask": np.array([True, True])})
            assert observation["turn"].tolist() == [0, 0]
    finally:
        envs.close()


def test_shared_memory_is_refused_instead_of_returning_garbage():
    with pytest.raises(ValueError, match="shared_memory"):
        gym.make_vec(FAKE, num_envs=2, vectorization_mode="async")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_observations_and_samples_are_in_their_spaces(kind):
    envs = make(kind, AutoresetMode.SAME_STEP)
    try:
        observation, _ = envs.reset()
        assert observation in envs.observation_space
        assert envs.step(envs.action_space.sample())[1].tolist() == [0.0, 0.0]
    finally:
        envs.close()


def test_environments_of_different_tasks_share_a_vector():
    names = ["KernelGym/RowSum-v0", "KernelGym/Matmul-v0"]
    envs = gym.vector.SyncVectorEnv([lambda name=name: gym.make(name, pool="fake") for name in names])
    observation, info = envs.reset()
    assert info["task_id"].tolist() == ["KernelGym/RowSum", "KernelGym/Matmul"]
    assert "RowSum" in observation["prompt"][0]
    assert "Matmul" in observation["prompt"][1]
