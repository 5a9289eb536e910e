"""`KernelEnv` on the deterministic evaluator: gymnasium's contract to the letter."""

import dataclasses
import json
import math
import multiprocessing
import pickle
import subprocess
import sys
import threading
import warnings
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgym_env
from kernelgym_env import rendering
from kernelgym_env.env import MAX_TURNS, STOP, KernelEnv
from kernelgym_env.errors import InvalidOptionError, MissingDataError, UnknownNameError
from kernelgym_env.evaluation.result import Status
from kernelgym_env.limits import MAX_FEEDBACK_CHARS, MAX_SOURCE_CHARS
from kernelgym_env.registration import environment_ids
from kernelgym_env.tasks import load_task, load_tasks

FAKE = "KernelGym/Fake-v0"
CORE = [env_id for env_id in environment_ids() if env_id.startswith("KernelGym/")]
GOOD = "# fake: status=correct speedup=2.0 coverage=0.5\nclass ModelNew: ..."
BAD = "# fake: status=wrong\nclass ModelNew: ..."
FAULT = "# fake: status=fault\nclass ModelNew: ..."


@pytest.fixture
def env():
    made = gym.make(FAKE)
    yield made
    made.close()


def fake(**options) -> KernelEnv:
    return KernelEnv(**{"task": "KernelGym/ElementwiseChain", "pool": "fake", **options})


# ids and specs


def test_ids_are_what_the_contract_says():
    ids = environment_ids()
    assert {
        "KernelGym/Kernel-v0",
        FAKE,
        "KernelGym/RowSoftmax-v0",
        "KernelBench/L1-001-v0",
        "KernelBench/L4-020-v0",
    } <= set(ids)
    assert len(ids) == len(set(ids))
    assert sum(env_id.startswith("KernelBench/L") for env_id in ids) == 270
    assert all(env_id in gym.registry for env_id in ids)


@pytest.mark.parametrize("env_id", CORE)
def test_check_env_is_clean_on_every_core_id(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(env_id, pool="fake")
        check_env(env.unwrapped)
        env.close()


def test_check_env_is_clean_on_kernelbench_ids(shared_data, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*known flaws")  # as some of these have
        for env_id in environment_ids():
            if env_id.startswith("KernelBench/"):
                env = gym.make(env_id, pool="fake")
                check_env(env.unwrapped, skip_render_check=True)
                env.close()


@pytest.mark.parametrize("backend", ["cuda", "cupy"])
def test_a_language_for_gpus_on_a_cpu(backend):
    with pytest.raises(InvalidOptionError, match=f"Backend '{backend}' does not run on device 'cpu'. Allowed on 'cpu'"):
        gym.make("KernelGym/RowSum-v0", device="cpu", backend=backend)
    for device in ("auto", "cuda"):  # what this machine is says nothing of the one that judges
        assert fake(device=device, backend=backend).reset(seed=0)[0]["turns_left"] == 4


def test_a_flawed_task_warns():
    task = load_task("KernelGym/RowSum")
    flawed = dataclasses.replace(task, tags=(*task.tags, "flaw-zeros"))
    with pytest.warns(UserWarning, match="RowSum has known flaws: zeros are accepted"):
        fake(task=[task, flawed])


@pytest.mark.parametrize("env_id", ["KernelGym/Kernel-v0", FAKE, "KernelGym/RowSoftmax-v0", "KernelGym/Mix-v0"])
def test_a_spec_goes_through_json(env_id):
    env = gym.make(env_id, turns=3, feedback="status", pool="fake")
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.spec == env.spec
    assert (again.unwrapped.turns, again.unwrapped.feedback) == (3, "status")


def test_no_time_limit_is_added(env):
    assert env.spec.max_episode_steps is None


def equal(one, two):
    """`data_equivalence`, but NaN equals NaN."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(two) and all(map(equal, one, two))
    if isinstance(one, float):
        return one == two or (math.isnan(one) and math.isnan(two))
    if isinstance(one, np.ndarray):
        return np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
    return type(one) is type(two) and one == two


@pytest.mark.parametrize("action", [GOOD, BAD, "text", STOP, "class ModelNew: ..."])
def test_the_fake_environment_is_deterministic(action):
    one, two = gym.make(FAKE), gym.make(FAKE)
    assert equal(one.reset(seed=7), two.reset(seed=7))
    assert equal(one.step(action), two.step(action))


def test_an_unknown_id_gets_gymnasium_s_own_hint():
    with pytest.raises(gym.error.NameNotFound, match="RowSoftmax"):
        gym.make("KernelGym/RowSoftmaxx-v0")


def test_the_module_prefix_works_in_a_fresh_process(repo_root):
    code = "import gymnasium as g; e = g.make('kernelgym_env:KernelGym/Fake-v0'); e.reset(); print(e.step('x')[1])"
    done = subprocess.run([sys.executable, "-c", code], cwd=repo_root, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0.0", done.stderr


def test_no_torch_and_no_process_before_the_first_step(repo_root):
    code = (
        "import sys, gymnasium as g, kernelgym_env\n"
        "from kernelgym_env.evaluation import processes\n"
        "import os\n"
        "e = g.make('KernelGym/RowSoftmax-v0'); e.reset(seed=1); e.action_space.sample()\n"
        "print('torch' in sys.modules, processes.children(os.getpid()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repo_root, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False []", done.stderr


# options


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("device", "gpu", "cuda"),
        ("backend", "trition", "triton"),
        ("protocol", "stirct", "strict"),
        ("library_ops", "forbidden", "forbid"),
        ("pool", "locale", "local"),
        ("feedback", "errors", "error"),
        ("render_mode", "ascii", "ansi"),
        ("task", "KernelGym/RowSoftmx", "RowSoftmax"),
    ],
)
def test_unknown_options_name_the_value_and_what_is_allowed(option, value, hint):
    with pytest.raises(UnknownNameError, match=f"{value}.*{hint}"):
        fake(**{option: value})


@pytest.mark.parametrize("turns", [0, -1, MAX_TURNS + 1, 2.0, True, "4", None])
def test_turns_outside_the_range_are_refused(turns):
    with pytest.raises(InvalidOptionError, match="turns must be"):
        fake(turns=turns)


@pytest.mark.parametrize(
    ("mix", "complaint"),
    [
        ({9: 1}, "Unknown level in level_mix 9. Allowed: 1, 2, 3"),
        ({True: 1}, "Unknown level in level_mix True"),
        ({1: -1}, "weight of level 1 must be a finite number of at least 0, got -1"),
        ({1: float("nan")}, "got nan"),
        ({1: "much"}, "got 'much'"),
        ({1.0: 1}, "Unknown level in level_mix 1.0. Allowed: 1, 2, 3"),
        ({"9" * 5000: 1}, "Unknown level in level_mix"),
        ({1: 10**400}, "got an integer too large for a float"),
        ({1: 10**5000}, "got an integer too large for a float"),
        ({1: 0, 2: 0}, "needs a weight above 0"),
        ({}, r"must map levels to weights, such as \{1: 2, 2: 1\}, got \{\}"),
        (3, "must map levels"),
    ],
)
def test_mixes_that_cannot_be(mix, complaint):
    with pytest.raises((InvalidOptionError, UnknownNameError), match=complaint):
        KernelEnv(pool="fake", level_mix=mix)


def test_a_mix_draws_levels_by_weight_and_tasks_alike():
    env = gym.make("KernelGym/Kernel-v0", pool="fake", level_mix={3: 3, "2": 1})
    levels = {task.id: task.level for task in load_tasks("core")}
    drawn = [env.reset(seed=seed)[1]["task_id"] for seed in range(400)]
    assert drawn == [env.reset(seed=seed)[1]["task_id"] for seed in range(400)]
    assert {levels[task_id] for task_id in drawn} == {2, 3}
    assert 270 < sum(levels[task_id] == 3 for task_id in drawn) < 330  # 300 expected, with a deviation of 8.7
    assert len(set(drawn)) == 2 + 13
    mixed = gym.make("KernelGym/Mix-v0", pool="fake")
    shares = Counter(levels[mixed.reset(seed=seed)[1]["task_id"]] for seed in range(300))
    assert all(70 < shares[level] < 130 for level in (1, 2, 3))


def test_a_mix_of_kernelbench(shared_data, monkeypatch, tmp_path):
    monkeypatch.delenv("KERNELBENCH_DIR", raising=False)
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path))
    with pytest.raises(MissingDataError, match="kernelgym tasks fetch kernelbench"):
        gym.make("KernelBench/Mix-v0")
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    with pytest.warns(UserWarning, match=r"known flaws: .*of the 250 tasks"):
        env = gym.make("KernelBench/Mix-v0", pool="fake", level_mix={3: 1})
    assert all(env.reset(seed=seed)[1]["task_id"].startswith("KernelBench/L3-") for seed in range(10))


def test_a_task_itself():
    task = load_task("KernelGym/RowSum")
    assert fake(task=task).reset(seed=0)[1]["task_id"] == task.id
    assert fake(task=[task, "KernelGym/ColumnMax"], level_mix={1: 1}).reset(seed=0)[1]["task_id"] in (
        task.id,
        "KernelGym/ColumnMax",
    )


@pytest.mark.parametrize("task", [3, [], [3], {}])
def test_tasks_of_another_kind_are_refused(task):
    with pytest.raises((InvalidOptionError, UnknownNameError), match=r"task|spec|text"):
        fake(task=task)


def test_unknown_reset_options_name_the_valid_ones(env):
    with pytest.raises(UnknownNameError, match="'tasks'.*task"):
        env.reset(options={"tasks": "x"})


def test_a_task_option_picks_a_task():
    env = gym.make("KernelGym/Kernel-v0", pool="fake")
    assert env.reset(options={"task": "KernelGym/RowSum"})[1]["task_id"] == "KernelGym/RowSum"
    assert env.reset(options={"task": "KernelGym/RowSum-v0"})[1]["task_id"] == "KernelGym/RowSum"
    with pytest.raises(UnknownNameError, match="RowSm"):
        env.reset(options={"task": "KernelGym/RowSm"})


def test_an_environment_of_one_task_refuses_another(env):
    with pytest.raises(UnknownNameError, match="KernelGym/RowSum.*ElementwiseChain"):
        env.reset(options={"task": "KernelGym/RowSum"})


def test_several_tasks_are_drawn_from_by_the_seed():
    env = gym.make("KernelGym/Kernel-v0", task=["KernelGym/RowSum", "KernelGym/RowSoftmax"], pool="fake")
    drawn = [env.reset(seed=seed)[1]["task_id"] for seed in range(20)]
    assert set(drawn) == {"KernelGym/RowSum", "KernelGym/RowSoftmax"}
    assert drawn == [env.reset(seed=seed)[1]["task_id"] for seed in range(20)]


def test_a_history_is_shown_and_uses_no_turn(env):
    given_turns = [{"action": "a", "feedback": "f"}]
    observation, info = env.reset(options={"history": given_turns})
    assert list(observation["history"]) == given_turns
    assert observation["feedback"] == "f"
    assert (info["turn"], info["turns_left"]) == (0, 4)
    assert observation in env.observation_space


def test_own_tasks_come_from_text_and_file(tmp_path):
    source = kernelgym_env.load_task("KernelGym/RowSum").source
    path = tmp_path / "mine.py"
    path.write_text(source)
    for spec in (source, str(path)):
        observation, _ = fake(task=spec).reset()
        assert source.strip()[:40] in observation["prompt"]


# reset and step


def test_the_same_seed_gives_the_same_first_observation():
    one, two = gym.make("KernelGym/Kernel-v0", pool="fake"), gym.make("KernelGym/Kernel-v0", pool="fake")
    for seed in range(5):
        assert data_equivalence(one.reset(seed=seed)[0], two.reset(seed=seed)[0])


def test_a_whole_episode(env):
    observation, info = env.reset(seed=0)
    rewards = []
    for number, (action, reward) in enumerate([(BAD, 0.0), (GOOD, 2.3), ("nothing", 0.0), (GOOD, 2.3)], 1):
        observation, got, terminated, truncated, info = env.step(action)
        assert observation in env.observation_space
        assert (got, info["score"]) == (reward, reward)
        assert (observation["turn"], observation["turns_left"]) == (number, 4 - number)
        assert (info["turn"], info["turns_left"]) == (number, 4 - number)
        assert (terminated, truncated) == (number == 4, False)
        assert len(observation["history"]) == number
        assert observation["history"][-1] == {"action": action, "feedback": observation["feedback"]}
        rewards.append(got)
    assert info["best_speedup"] == 2.0
    with pytest.raises(gym.error.ResetNeeded, match="over"):
        env.step(GOOD)
    env.reset()
    env.step(GOOD)


def test_types_are_python_s_own(env):
    env.reset()
    _, reward, terminated, truncated, info = env.step(GOOD)
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert type(info["score"]) is float
    assert math.isfinite(reward)


def test_stepping_before_reset_is_told():
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        fake().step(GOOD)
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        fake(render_mode="ansi").render()


@pytest.mark.parametrize("action", [None, 3, b"x", ["x"], {"code": "x"}])
def test_an_action_that_is_not_text_is_a_caller_s_mistake(action):
    env = fake()
    env.reset()
    with pytest.raises(gym.error.InvalidAction, match=type(action).__name__):
        env.step(action)


@given(st.text(max_size=300))
@settings(max_examples=100)
def test_any_text_is_an_action(action):
    env = fake()
    env.reset()
    observation, reward, _, _, info = env.step(action)
    assert observation in env.observation_space
    assert math.isfinite(reward)
    assert info["status"] in {status.value for status in Status} | {""}


def test_an_action_over_the_bound_is_a_format_outcome_and_is_cut_in_the_history(env):
    env.reset()
    observation, reward, *_, info = env.step("x" * (MAX_SOURCE_CHARS + 1000))
    assert (reward, info["status"]) == (0.0, "format")
    assert observation in env.observation_space
    assert len(observation["history"][0]["action"]) == MAX_SOURCE_CHARS


def test_a_fenced_reply_is_the_same_as_its_source(env):
    env.reset()
    _, bare, *_ = env.step(GOOD)
    _, fenced, *_, info = env.step(f"Here you are:\n```python\n{GOOD}\n```\nGood luck!")
    assert bare == fenced == 2.3
    assert info["status"] == "correct"


def test_the_agent_can_stop(env):
    env.reset()
    env.step(GOOD)
    observation, reward, terminated, truncated, info = env.step(f" {STOP}\n")
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert (info["status"], info["turns_left"], info["valid"]) == ("", 0, True)
    assert info["best_speedup"] == 2.0
    assert observation in env.observation_space


def test_a_fault_truncates_with_reward_zero_and_is_marked_invalid(env):
    env.reset()
    observation, reward, terminated, truncated, info = env.step(FAULT)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["valid"], info["status"], info["fault"] != "") == (False, "fault", True)
    assert observation in env.observation_space


@pytest.mark.parametrize("status", [status for status in Status if status not in (Status.CORRECT, Status.FAULT)])
def test_every_other_outcome_pays_nothing_and_goes_on(status, env):
    env.reset()
    _, reward, terminated, truncated, info = env.step(f"# fake: status={status}\nclass ModelNew: ...")
    assert (reward, terminated, truncated, info["status"], info["valid"]) == (0.0, False, False, status.value, True)


def test_feedback_is_bounded_and_its_level_matters():
    texts = {}
    for level in ("status", "error", "profile"):
        env = fake(feedback=level)
        env.reset()
        texts[level] = env.step(BAD)[0]["feedback"]
    assert texts["status"] == "wrong: The output is wrong."
    assert len(texts["error"]) > len(texts["status"])
    env.reset()
    assert len(env.step("class ModelNew(" + "(" * 100_000)[0]["feedback"]) <= MAX_FEEDBACK_CHARS


# info

INFO = {
    "task_id": str,
    "turn": int,
    "turns_left": int,
    "status": str,
    "correct": bool,
    "credited": bool,
    "valid": bool,
    "score": float,
    "speedup": float,
    "speedup_low": float,
    "speedup_high": float,
    "speedup_compile": float,
    "coverage": float,
    "roofline_fraction": float,
    "best_speedup": float,
    "finding_ids": tuple,
    "fault": str,
    "overhead_s": float,
    "turn_returns": np.ndarray,
    "evaluation": dict,
}


def _shape(value):
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items() if key != "provenance"}
    return type(value)


def test_info_has_one_schema_from_reset_on(env):
    _, info = env.reset()
    assert {key: type(value) for key, value in info.items()} == INFO
    shapes = [_shape(info)]
    for status in Status:
        env.reset()
        shapes.append(_shape(env.step(f"# fake: status={status}\nclass ModelNew: ...")[4]))
    env.reset()
    shapes.append(_shape(env.step(STOP)[4]))
    assert all(shape == shapes[0] for shape in shapes)


def test_turn_returns_has_a_place_per_turn():
    env = fake(turns=6)
    _, info = env.reset()
    assert info["turn_returns"].shape == (6,)
    assert info["turn_returns"].dtype == np.float64
    assert np.isnan(info["turn_returns"]).all()


def test_info_is_plain_data(env):
    env.reset()
    *_, info = env.step(GOOD)
    info["turn_returns"] = info["turn_returns"].tolist()
    json.dumps(info)


# state


def test_a_cloned_state_continues_elsewhere():
    env = fake()
    env.reset(seed=3)
    env.step(GOOD)
    state = json.loads(json.dumps(env.clone_state()))
    left = env.step(BAD)
    other = fake()
    observation, info = other.restore_state(state)
    assert (info["turn"], info["best_speedup"]) == (1, 2.0)
    assert observation in other.observation_space
    assert equal(other.step(BAD), left)
    with pytest.raises(InvalidOptionError, match="4 turns"):
        fake(turns=2).restore_state(state)
    with pytest.raises(gym.error.ResetNeeded):
        fake().clone_state()


def _use(data, queue):
    env = pickle.loads(data)
    queue.put((env.step(GOOD)[1], env.reset()[1]["task_id"]))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pickle_through_a_child(method):
    env = gym.make(FAKE)
    env.reset(seed=0)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_use, args=(pickle.dumps(env), queue))
    child.start()
    assert queue.get(timeout=60) == (2.3, "KernelGym/ElementwiseChain")
    child.join()


def test_close_may_be_called_twice_and_the_env_is_a_context_manager():
    with fake() as env:
        env.reset()
        env.close()
        env.close()


# rendering


def test_ansi_is_a_text():
    env = gym.make(FAKE, render_mode="ansi")
    env.reset()
    env.step(GOOD)
    text = env.render()
    assert isinstance(text, str)
    assert "2.00x" in text
    assert "correct" in text


def test_a_table_names_the_turn_that_is_played():
    env = gym.make(FAKE, turns=2)
    env.reset()
    for played in range(3):
        episode = env.unwrapped.episode
        assert str(rendering.table(episode).title).endswith(f"turn {played} of 2")
        assert str(rendering.table(episode, running=True).title).endswith(f"turn {min(played + 1, 2)} of 2")
        if played < 2:
            env.step(GOOD)
    columns = [column.header for column in rendering.table(episode, [2.3, 4.6]).columns]
    assert columns[-2:] == ["reward", "return"]


def test_human_prints_and_returns_none(capsys):
    env = gym.make(FAKE, render_mode="human")
    env.reset()
    env.step(GOOD)
    assert env.render() is None
    assert "2.00x" in capsys.readouterr().out


def test_rgb_array_is_a_picture_of_constant_size_that_shows_something():
    env = gym.make(FAKE, render_mode="rgb_array")
    env.reset()
    first = env.render()
    env.step(GOOD)
    second = env.render()
    assert first.dtype == np.uint8
    assert first.shape == second.shape == (*first.shape[:2], 3)
    assert (first != second).any()


def test_gymnasium_records_what_is_rendered():
    env = gym.wrappers.RenderCollection(gym.make(FAKE, render_mode="rgb_array"))
    env.reset()
    env.step(GOOD)
    assert len(env.render()) == 2


def test_render_without_a_mode_warns(env):
    env.reset()
    with pytest.warns(UserWarning, match="render_mode"):
        env.unwrapped.render()


# wrappers of gymnasium's own and threads


def test_gymnasium_s_wrappers_fit():
    env = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.TransformReward(gym.make(FAKE), np.tanh))
    env.reset()
    for _ in range(4):
        *_, info = env.step(GOOD)
    assert info["episode"]["l"] == 4
    limited = gym.wrappers.TimeLimit(gym.make(FAKE), 2)
    limited.reset()
    limited.step(GOOD)
    assert limited.step(GOOD)[2:4] == (False, True)
    kept = gym.wrappers.FilterObservation(gym.make(FAKE), ["prompt", "feedback"])
    assert set(kept.reset()[0]) == {"prompt", "feedback"}


def test_an_env_is_usable_from_a_thread():
    results = []

    def play():
        env = gym.make(FAKE)
        env.reset(seed=1)
        results.append(env.step(GOOD)[1])

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2.3] * 8


def test_global_random_state_is_left_alone(env):
    import random

    np.random.seed(0)
    random.seed(0)
    before = (np.random.get_state()[1].tolist(), random.getstate())
    env.reset(seed=5)
    env.step(GOOD)
    env.action_space.sample()
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before


def test_info_has_the_share_of_the_roofline():
    env = gym.make("KernelGym/RowSum-v0", pool="simulated", turns=2)
    _, info = env.reset(seed=0)
    assert math.isnan(info["roofline_fraction"])
    info = env.step("no source")[4]
    assert math.isnan(info["roofline_fraction"])  # nothing was timed
    info = env.step("class ModelNew: ...")[4]
    times = info["evaluation"]["times"]
    assert info["roofline_fraction"] == times["floor"]["median_us"] / times["candidate"]["median_us"]
    assert 0 < info["roofline_fraction"] < 1


def test_a_mistyped_option_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown option 'tunrs'. Did you mean 'turns'\?"):
        gym.make("KernelGym/Fake-v0", tunrs=3)
