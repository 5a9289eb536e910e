"""What holds for every wrapper: re-made from its spec and from JSON, pickled, in vectors, checked by gymnasium."""

import copy
import dataclasses
import inspect
import json
import multiprocessing
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from wrapper_helpers import FAKE, FAULT, GOOD, fake

from kernelgym_env import wrappers
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.store import Store, TurnRecord

# Arguments that differ from the defaults, so that one that gets lost is noticed. `{file}` is a path of the test's own.
CASES = {
    "KevinReward": {"weight": 0.5, "cap": 4.0},
    "MilestoneReward": {"levels": [[2.0, 0.1, ["eager"]]], "correct": 0.5, "failed": -2.0},
    "CudaL1Reward": {"decimals": 2},
    "DrKernelReward": {"form": "released", "cap": 2.0, "lower": 0.1, "coverage_weight": 0.25},
    "MakoraReward": {"delta": 1.0, "baseline": "eager"},
    "TritonRLReward": {"alpha": 0.2, "cap": 3.0},
    "KernelGymTiersReward": {
        "tiers": [[1.5, 2.0]],
        "slower": 0.0,
        "wrong": -0.2,
        "compile_error": -0.4,
        "failed": -2.0,
    },
    "LogSpeedupReward": {"base": 3.0, "low": -2.0, "high": 4.0, "failed": -3.0},
    "RooflineReward": {},
    "ImprovementReward": {"score": "dr_kernel", "start": 0.5},
    "RewardJump": {
        "ratio": 1.5,
        "absolute": 1.8,
        "agreement": 0.2,
        "rule": "reject",
        "judge": "wrapper_helpers:trusts",
        "retest": "wrapper_helpers:slower",
    },
    "LazyOptimization": {"margin": 3.0, "floor": 0.6, "softness": 0.2, "factor": 0.5},
    "AntiHack": {"cost": "minus_one", "overrides": {"A2": "zero_end"}, "severities": ["hard", "soft"]},
    "RunningNormalizeClip": {"clip": 1.0, "scope": "group", "warmup": 1, "ddof": 1, "frozen": True},
    "TurnReturns": {"gamma": 0.8, "mode": "max", "turns": 6},
    "TerminalOnly": {"mode": "best"},
    "Exemplars": {"path": "{store}", "count": 3, "edges": [1.0, 2.0], "temperature": 2.0, "collect": False},
    "HistoryPrompt": {"token_budget": 3000, "counter": "wrapper_helpers:words", "ask": False},
    "ChatObservation": {"system": "You write kernels."},
    "NumericObservation": {},
    "ExtractCode": {"pick": "last", "languages": ["python", ""], "unfenced": True},
    "ScheduleAction": {
        "template": "{template}",
        "knobs": {"speed": [1.0, 2.0], "name": ["a", "b"]},
        "discrete": True,
        "forbidden": [{"speed": 1.0, "name": "b"}],
    },
    "RecordTrajectory": {"path": "{record}", "run_id": "run", "versions": {"policy": "1"}},
}
BASES = {"KernelWrapper", "RecipeReward"}
MODES = list(AutoresetMode)

multiprocessing.set_forkserver_preload(["kernelgym_env.wrappers"])


def test_every_wrapper_has_a_case():
    assert set(CASES) == set(wrappers.__all__) - BASES
    for name in CASES:
        parameters = list(inspect.signature(getattr(wrappers, name)).parameters)
        assert parameters[0] == "env"
        assert set(CASES[name]) == set(parameters[1:]), f"the case of {name} leaves an argument out"


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrappers")
    paths = {name: str(folder / f"{name}.txt") for name in ("store", "template", "record")}
    with open(paths["template"], "w") as file:
        file.write("# fake: speedup={{ speed }}\nclass ModelNew: ...  # {{ name }}")
    Store(paths["store"]).append(
        TurnRecord("run", "e", "KernelGym/ElementwiseChain", 1, "p", GOOD, {"credited": True, "speedup": 2.0})
    )
    return paths


@pytest.fixture(params=CASES)
def case(request, files):
    text = json.dumps(CASES[request.param])
    for name, path in files.items():
        text = text.replace("{" + name + "}", path)
    return getattr(wrappers, request.param), json.loads(text)


@pytest.fixture(scope="module")
def child():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def good(env):
    return 3 if isinstance(env.action_space, gym.spaces.Discrete) else GOOD


def outcome(env):
    """Plain data of two turns, without what differs from one episode to the next."""
    observation, info = env.reset(seed=3)
    steps = [env.step(good(env)) for _ in range(2)]
    for entry in (info, *(step[4] for step in steps)):
        entry.pop("episode_id", None)
    return repr((observation, info, steps))


def spec_with(wrapper, arguments):
    spec = copy.deepcopy(gym.spec(FAKE))
    spec.additional_wrappers = (wrapper.wrapper_spec(**arguments),)
    return spec


def test_a_wrapper_is_re_made_from_its_spec(case):
    wrapper, arguments = case
    env = wrapper(fake(turns=3), **arguments)
    assert isinstance(env, gym.Wrapper) and isinstance(env, RecordConstructorArgs)
    assert env.spec.additional_wrappers[-1].kwargs == arguments
    again = gym.make(env.spec)
    assert type(again) is wrapper
    assert again.spec == env.spec
    assert outcome(again) == outcome(env)


def test_a_wrapper_is_re_made_from_json(case):
    wrapper, arguments = case
    env = wrapper(fake(turns=3), **arguments)
    text = env.spec.to_json()
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    again = gym.make(EnvSpec.from_json(text))
    assert again.spec == env.spec
    assert outcome(again) == outcome(env)


def test_defaults_are_recorded_too(case):
    wrapper, arguments = case
    needed = {
        name: arguments[name]
        for name, parameter in list(inspect.signature(wrapper).parameters.items())[1:]
        if parameter.default is inspect.Parameter.empty
    }
    if wrapper is wrappers.ScheduleAction:  # only a template of the library has knobs of its own
        needed["knobs"] = arguments["knobs"]
    env = wrapper(fake(), **needed)
    assert set(env.spec.additional_wrappers[-1].kwargs) == set(arguments)
    assert gym.make(EnvSpec.from_json(env.spec.to_json())).spec == env.spec


def _use(data):
    return outcome(pickle.loads(data))


def test_a_wrapper_is_pickled_through_a_spawned_child(case, child):
    wrapper, arguments = case
    env = wrapper(fake(turns=3), **arguments)
    env.reset(seed=0)
    env.step(good(env))
    data = pickle.dumps(env)
    assert child.submit(_use, data).result(timeout=120) == outcome(pickle.loads(data))


def test_gymnasium_s_checker_finds_nothing(case):
    wrapper, arguments = case
    env = wrapper(fake(turns=3), **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(env)


def test_constructors_check_the_environment(case):
    wrapper, arguments = case
    with pytest.raises(TypeError, match="gymnasium.Env"):
        wrapper("no environment", **arguments)


def shape(value):
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key not in ("provenance", "times")}
    return (type(value), value.shape, value.dtype) if isinstance(value, np.ndarray) else type(value)


def test_info_has_one_schema_from_reset_on(case):
    wrapper, arguments = case
    env = wrapper(fake(turns=3), **arguments)
    _, info = env.reset(seed=0)
    texts = isinstance(env.action_space, gym.spaces.Text)
    shapes = [shape(info)]
    for action in [GOOD, "nothing", FAULT] if texts else [0, 1, 2]:
        step = env.step(action)
        assert (type(step[1]), type(step[2]), type(step[3])) == (float, bool, bool)
        assert step[0] in env.observation_space
        shapes.append(shape(step[4]))
    assert all(entry == shapes[0] for entry in shapes)
    assert set(fake().reset()[1]) <= set(info)


def test_a_fault_pays_nothing(case):
    wrapper, arguments = case
    env = wrapper(fake(), **arguments)
    if not isinstance(env.action_space, gym.spaces.Text):
        pytest.skip("the template makes no fault")
    env.reset()
    _, reward, terminated, truncated, info = env.step(FAULT)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["score"] == 0.0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_wrapper_works_in_a_vector(case, kind, mode):
    options = {"autoreset_mode": mode}
    if kind == "async":
        options.update(shared_memory=False, context="forkserver")
    envs = gym.make_vec(spec_with(*case), num_envs=2, vectorization_mode=kind, vector_kwargs=options, turns=2)
    try:
        act = [GOOD, GOOD] if isinstance(envs.single_action_space, gym.spaces.Text) else np.array([3, 3])
        observation, info = envs.reset(seed=[1, 2])
        keys = set(info)
        assert observation in envs.observation_space
        for _ in range(2):
            observation, rewards, ends, cuts, info = envs.step(act)
            assert rewards.dtype == np.float64
        assert ends.tolist() == [True, True]
        assert cuts.tolist() == [False, False]
        if mode is AutoresetMode.SAME_STEP:
            assert keys <= set(info["final_info"])
            assert keys <= set(info)
        elif mode is AutoresetMode.NEXT_STEP:
            assert keys <= set(info)
            observation, rewards, *_, info = envs.step(act)
            assert rewards.tolist() == [0.0, 0.0]
        else:
            observation, info = envs.reset(options={"reset_mask": np.array([True, True])})
        assert info["turn"].tolist() == [0, 0]
        assert observation in envs.observation_space
        assert envs.step(act)[1].shape == (2,)
    finally:
        envs.close()


STACK = (
    ("RewardJump", {}),
    ("MilestoneReward", {}),
    ("LazyOptimization", {}),
    ("AntiHack", {"cost": "minus_one_end"}),
    ("RunningNormalizeClip", {"warmup": 0}),
    ("TurnReturns", {}),
    ("TerminalOnly", {}),
    ("Exemplars", {}),
    ("HistoryPrompt", {}),
    ("ChatObservation", {}),
    ("ExtractCode", {}),
    ("RecordTrajectory", {"path": "{record}"}),
)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_stack_of_all_works_in_a_vector_and_its_order_is_kept(kind, tmp_path):
    path = str(tmp_path / "run.jsonl")
    spec = copy.deepcopy(gym.spec(FAKE))
    spec.additional_wrappers = tuple(
        getattr(wrappers, name).wrapper_spec(**({"path": path} if "path" in arguments else arguments))
        for name, arguments in STACK
    )
    assert (
        gym.make(EnvSpec.from_json(spec.to_json())).spec.additional_wrappers == gym.make(spec).spec.additional_wrappers
    )
    options = {"autoreset_mode": AutoresetMode.SAME_STEP}
    if kind == "async":
        options.update(shared_memory=False, context="forkserver")
    envs = gym.make_vec(spec, num_envs=2, vectorization_mode=kind, vector_kwargs=options, turns=2)
    try:
        envs.reset(seed=0)
        for _ in range(4):
            envs.step([GOOD, "# fake: status=integrity\nclass ModelNew: ..."])
    finally:
        envs.close()
    lengths = sorted(len(episode) for episode in Store(path).episodes())
    assert lengths == [1, 1, 1, 1, 2, 2]


def test_arguments_that_are_no_plain_data_are_refused():
    for value in (np.tanh, object(), float("nan"), {1: 2}):
        with pytest.raises(InvalidOptionError, match="plain data"):
            wrappers.KernelWrapper(fake(), option=value)


def test_numpy_s_numbers_and_tuples_are_recorded_as_json_would_give_them():
    env = wrappers.KernelWrapper(fake(), option=(np.float64(1.5), np.int64(2)))
    assert env.spec.additional_wrappers[-1].kwargs == {"option": [1.5, 2]}
    assert dataclasses.asdict(EnvSpec.from_json(env.spec.to_json())) == dataclasses.asdict(env.spec)


@pytest.mark.parametrize("name", ["", "math", "math.sqrt", "math:nothing", "no_module_of_this_name:f", 3])
def test_functions_that_cannot_be_loaded_are_named(name):
    with pytest.raises(InvalidOptionError, match="counter"):
        wrappers.HistoryPrompt(fake(), counter=name)


def test_a_name_that_is_no_function_is_refused():
    with pytest.raises(InvalidOptionError, match="names a int; give a function"):
        wrappers.HistoryPrompt(fake(), counter="wrapper_helpers:NO_FUNCTION")
