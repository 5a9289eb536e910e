"""stable-baselines3: its checker, its algorithms, its wrappers and callbacks on schedules of kernels."""

import json
import warnings

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import CallbackList, EvalCallback
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from kernelgym_env import pools
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Status
from kernelgym_env.integrations.sb3 import KernelCallback, KernelVecEnv, make_schedule_env
from kernelgym_env.pools.simulated import SimulatedPool
from kernelgym_env.pools.simulated_tasks import SimulatedConfig
from kernelgym_env.pools.table import TablePool
from kernelgym_env.tasks import load_task
from kernelgym_env.templates import get_template
from kernelgym_env.templates.features import RESULT_FEATURES, TASK_FEATURES
from kernelgym_env.tuning import Entry, Table, sized

TEMPLATE = "cpp/rows"
TASKS = [sized(load_task("KernelGym/RowSoftmax"), ROWS=rows, COLUMNS=8192 // rows) for rows in (1, 256)]
SMALL = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, "device": "cpu", "seed": 0}


def table(task, best):
    """A table in which `best` of the chunks is the fastest by far, and fast maths fails."""
    entries = [
        Entry(
            choices, "correct" if choices["math"] == "exact" else "wrong", 20.0 if choices["chunk"] == best else 200.0
        )
        for choices in get_template(TEMPLATE).configurations()
    ]
    return Table(task.id, task.hash, TEMPLATE, 100.0, tuple(entries))


@pytest.fixture(autouse=True)
def pool():
    torch.set_num_threads(1)  # nets this small lose more by waiting for threads than they gain
    tables = [table(task, best) for task, best in zip(TASKS, (256, 4096), strict=True)]
    pools.register("for_sb3", lambda: TablePool(tables, noise=0.01))
    return "for_sb3"


def envs(count=4, **options):
    return KernelVecEnv(count, TEMPLATE, **{"task": TASKS, "pool": "for_sb3", "device": "cpu", "turns": 2, **options})


def single(**options):
    return make_schedule_env(TEMPLATE, **{"task": TASKS, "pool": "for_sb3", "device": "cpu", "turns": 2, **options})


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("reward", ["log_speedup", "kevin"])
def test_its_checker_is_content(discrete, reward):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(single(discrete=discrete, reward=reward))


def test_observations_say_what_they_are():
    env = single()
    observation, _ = env.reset(seed=0)
    names = env.get_wrapper_attr("names")
    assert len(names) == len(observation) == len(TASK_FEATURES) + len(RESULT_FEATURES) + 4
    seen = dict(zip(names, observation.tolist(), strict=True))
    assert seen["is_rows"] == 1 and seen["turns_left"] == 1 and seen["choice_math"] == -1
    observation, *_ = env.step([1, 0, 2, 1])
    seen = dict(zip(names, observation.tolist(), strict=True))
    assert seen["was_wrong"] == 1 and seen["choice_math"] == 1 and seen["choice_unroll"] == 1 and seen["turn"] == 0.5


def test_one_vector_env_is_as_many_single_ones():
    many, alone = envs(3, task=TASKS[0]), single(task=TASKS[0])
    many.seed(5)
    first = many.reset()
    observation, _ = alone.reset(seed=5)
    assert np.array_equal(first, np.stack([observation] * 3))
    actions = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 2, 0, 0]]
    pools.register("for_sb3", lambda: TablePool([table(TASKS[0], 256)]))
    seen, rewards, dones, infos = many.step(actions)
    for place, action in enumerate(actions):
        alone.reset(seed=5)
        one, reward, *_, info = alone.step(action)
        assert np.array_equal(seen[place], one) and rewards[place] == pytest.approx(reward)
        assert infos[place]["status"] == info["status"] and infos[place]["schedule"].tolist() == action
    assert not dones.any()


def test_an_episode_s_end():
    many = envs(2, task=TASKS[0])
    many.reset()
    many.step([[0, 0, 0, 0]] * 2)
    seen, _, dones, infos = many.step([[0, 0, 0, 0], [1, 1, 1, 1]])
    assert dones.all()
    for place in range(2):
        last = infos[place]["terminal_observation"]
        assert last.shape == seen[place].shape and not np.array_equal(last, seen[place])
        assert infos[place]["TimeLimit.truncated"] is False
        assert infos[place]["turn"] == 2 and many.reset_infos[place]["turn"] == 0
    assert (seen[:, -4:] == -1).all()


def test_a_fault_is_a_truncation():
    pools.register("for_sb3", lambda: SimulatedPool(SimulatedConfig(fault=1.0)))
    many = envs(2, task=TASKS[0])
    many.reset()
    _, rewards, dones, infos = many.step([[0, 0, 0, 0]] * 2)
    assert dones.all() and (rewards == 0).all()
    other = envs(1, task=TASKS[0], reward=lambda evaluation: -1.0)
    other.reset()
    assert other.step([[0, 0, 0, 0]])[1].tolist() == [0.0]
    assert all(info["TimeLimit.truncated"] and info["status"] == Status.FAULT.value for info in infos)


def test_options_and_seeds_of_a_reset():
    many = envs(2)
    many.set_options([{"task": TASKS[1].id}, {"task": TASKS[0].id}])
    many.reset()
    assert [info["task_id"] for info in many.reset_infos] == [TASKS[1].id, TASKS[0].id]
    drawn = set()
    for seed in range(6):
        many.seed(seed)
        many.reset()
        first = [info["task_id"] for info in many.reset_infos]
        many.seed(seed)
        many.reset()
        assert [info["task_id"] for info in many.reset_infos] == first
        drawn |= set(first)
    assert drawn == {task.id for task in TASKS}


def test_masks_are_there_for_those_who_ask():
    """As sb3-contrib asks: `has_attr`, then `env_method`."""
    many = VecMonitor(envs(3, knobs={"unroll": [1, 4]}))
    assert many.has_attr("action_masks") and not many.has_attr("no_such_thing")
    masks = np.stack(many.env_method("action_masks"))
    assert masks.shape == (3, 2 + 3 + 2 + 2) and masks.all()
    assert many.unwrapped.action_masks().shape == masks.shape
    one = KernelVecEnv(1, "triton/rows", knobs={"block": [4096], "warps": [1, 8]}, task=TASKS, pool="fake")
    assert one.action_masks()[0].tolist() == [True] * 4 + [False, True] + [True] * 3  # a block alone is no choice
    knobs = {"variant": ["loop"], "block": [4096, 8192], "warps": [1, 8], "stages": [1]}
    rows = KernelVecEnv(2, "triton/rows", knobs=knobs, discrete=True, task=TASKS, pool="fake")
    assert rows.env_method("action_masks")[1].tolist() == [False, True, False, True]


@pytest.mark.parametrize("discrete", [False, True])
def test_maskable_ppo(discrete):
    contrib = pytest.importorskip("sb3_contrib")
    model = contrib.MaskablePPO("MlpPolicy", VecMonitor(envs(discrete=discrete)), **SMALL)
    model.learn(64)


@pytest.mark.parametrize("algorithm", ["PPO", "A2C"])
def test_algorithms_for_several_knobs(algorithm):
    if algorithm == "PPO":
        PPO("MlpPolicy", VecMonitor(envs()), **SMALL).learn(64)
    else:
        A2C("MlpPolicy", VecMonitor(envs()), device="cpu", seed=0).learn(64)


def test_dqn_takes_the_discrete_space():
    model = DQN("MlpPolicy", VecMonitor(envs(discrete=True)), learning_starts=16, device="cpu", seed=0)
    model.learn(80)
    picked, _ = model.predict(envs(1, discrete=True).reset(), deterministic=True)
    assert 0 <= picked[0] < 36


@pytest.mark.slow
def test_ppo_learns_which_schedule_suits_which_size():
    knobs = {"unroll": [1], "threads": [0]}  # what makes no difference in these tables
    options = {**SMALL, "n_epochs": 10, "batch_size": 64, "gamma": 0.0, "ent_coef": 0.02, "learning_rate": 2e-3}
    model = PPO("MlpPolicy", VecMonitor(envs(16, turns=1, knobs=knobs)), **options)
    model.learn(2048)
    for task, best in zip(TASKS, (256, 4096), strict=True):
        alone = envs(1, turns=1, task=task, knobs=knobs)
        picked, _ = model.predict(alone.reset(), deterministic=True)
        chosen = alone.env_method("choices", picked[0])[0]
        assert (chosen["math"], chosen["chunk"]) == ("exact", best)


def test_monitor_normalize_and_eval_callback(tmp_path):
    train = VecNormalize(VecMonitor(envs()), norm_obs=False)
    other = VecNormalize(VecMonitor(envs(2)), norm_obs=False, training=False)
    evaluated = EvalCallback(other, n_eval_episodes=4, eval_freq=8, log_path=str(tmp_path), verbose=0)
    model = PPO("MlpPolicy", train, **SMALL)
    model.learn(64, callback=CallbackList([evaluated, KernelCallback()]))
    assert (tmp_path / "evaluations.npz").exists()
    mean, _ = evaluate_policy(model, DummyVecEnv([lambda: Monitor(single(), info_keywords=("speedup", "status"))]), 2)
    assert np.isfinite(mean)


def test_the_callback_logs_and_keeps_the_best(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    callback = KernelCallback(tmp_path / "best.json")
    model = PPO("MlpPolicy", VecMonitor(envs()), **SMALL, tensorboard_log=str(tmp_path / "log"))
    model.learn(96, callback=callback)
    assert callback.evaluations == 96
    kept = json.loads((tmp_path / "best.json").read_text())
    assert kept["speedup"] == callback.best_speedup == pytest.approx(5.0, rel=0.1)
    knobs = model.get_env().get_attr("knobs")[0]
    assert kept["choices"] == {
        name: values[place] for (name, values), place in zip(knobs.items(), kept["schedule"], strict=True)
    }
    events = EventAccumulator(str(next((tmp_path / "log").iterdir())))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"kernel/correct", "kernel/fast_1", "kernel/fast_2", "kernel/best", "kernel/geomean"} <= tags


def test_findings_are_counted():
    config = SimulatedConfig(hack_probability=1.0, lazy_probability=0.0)
    pools.register("for_sb3", lambda: SimulatedPool(config))
    callback = KernelCallback()
    model = PPO("MlpPolicy", VecMonitor(envs()), **{**SMALL, "n_steps": 8})
    logged = {}
    model.learn(32, callback=callback, log_interval=None)
    logged = model.logger.name_to_value
    assert any(name.startswith("finding/") for name in logged)


@pytest.mark.filterwarnings("ignore:rich is experimental")
def test_the_progress_bar(capsys):
    pytest.importorskip("tqdm")
    PPO("MlpPolicy", VecMonitor(envs()), **SMALL).learn(32, progress_bar=True)


def test_what_a_vec_env_is_asked():
    many = envs(2)
    many.reset()
    assert many.get_attr("knobs")[0] == many.get_attr("knobs", indices=1)[0]
    assert [task.id for task in many.get_attr("task")] == [info["task_id"] for info in many.reset_infos]
    assert many.env_is_wrapped(Monitor) == [False, False]
    assert many.get_images() == [None, None]
    with pytest.raises(AttributeError, match="share their options"):
        many.set_attr("turns", 3)
    many.close()
    many.close()


def test_mistakes():
    with pytest.raises(UnknownNameError, match="reward"):
        envs(reward="speed")
    with pytest.raises(InvalidOptionError, match="reward must be one of"):
        single(reward="speed")
    with pytest.raises(InvalidOptionError, match="does not fit KernelGym/Matmul"):
        envs(task="KernelGym/Matmul", pool="fake").reset()
    with pytest.raises(InvalidOptionError, match="does not fit KernelGym/Matmul"):
        single(task="KernelGym/Matmul", pool="fake").reset()
    with pytest.raises(InvalidOptionError, match="num_envs"):
        envs(0)
