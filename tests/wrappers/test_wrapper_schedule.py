import itertools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from wrapper_helpers import ScriptedEnv, fake, play

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.wrappers import KevinReward, RecordTrajectory, ScheduleAction

KNOBS = {"block": [64, 128, 256], "warps": [4, 8]}
TEXT = "# fake: speedup={{ block / 64 * warps / 4 }}\nclass ModelNew: ...  # {{ task.id }}\n"


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "kernel.jinja"
    path.write_text(TEXT)
    return str(path)


def test_choices_become_source(template):
    env = ScheduleAction(fake(), template, KNOBS)
    assert env.action_space == spaces.MultiDiscrete([3, 2])
    _, info = env.reset()
    assert info["schedule"].tolist() == [-1, -1]
    assert env.source([2, 1]) == "# fake: speedup=8.0\nclass ModelNew: ...  # KernelGym/ElementwiseChain\n"
    for action in (np.array([1, 1]), [1, 1], (np.int64(1), 1)):
        *_, info = env.step(action)
        assert info["speedup"] == 4.0
        assert info["schedule"].tolist() == [1, 1]
        assert info["schedule"].dtype == np.int64


def test_one_number_for_all_knobs(template):
    env = ScheduleAction(fake(turns=6), template, KNOBS, discrete=True)
    assert env.action_space == spaces.Discrete(6)
    env.reset()
    for action, (block, warps) in enumerate(itertools.product(*KNOBS.values())):
        *_, info = env.step(np.int64(action))
        assert info["speedup"] == block / 64 * warps / 4
        assert info["schedule"].tolist() == [KNOBS["block"].index(block), KNOBS["warps"].index(warps)]


@pytest.mark.parametrize("discrete", [False, True])
def test_samples_and_masks_fit_the_space(template, discrete):
    env = ScheduleAction(fake(), template, KNOBS, discrete=discrete)
    env.reset()
    env.step(env.action_space.sample())
    masks = env.action_masks()
    assert masks.dtype == np.bool_
    assert masks.shape == ((6,) if discrete else (5,))
    assert masks.all()
    assert KevinReward(env).get_wrapper_attr("action_masks")().all()


def test_forbidden_combinations_are_masked(template):
    forbidden = [{"block": 256}, {"block": 64, "warps": 8}]
    separate = ScheduleAction(fake(), template, KNOBS, forbidden=forbidden)
    assert separate.action_masks().tolist() == [True, True, False, True, True]
    joint = ScheduleAction(fake(), template, KNOBS, discrete=True, forbidden=forbidden)
    assert joint.action_masks().tolist() == [True, False, True, True, False, False]
    joint.action_masks()[:] = True
    assert not joint.action_masks().all()  # a copy
    earned, _ = play(joint, [5])
    assert earned == [8.3]  # safe all the same


@pytest.mark.parametrize("action", [[3, 0], [0], [0.0, 1.0], "01", None, [-1, 0]])
def test_actions_outside_the_space(template, action):
    env = ScheduleAction(fake(), template, KNOBS)
    env.reset()
    with pytest.raises(gym.error.InvalidAction, match="MultiDiscrete"):
        env.step(action)
    env = ScheduleAction(fake(), template, KNOBS, discrete=True)
    env.reset()
    for wrong in (6, -1, 1.0, [1, 1], "1"):
        with pytest.raises(gym.error.InvalidAction, match="Discrete"):
            env.step(wrong)


def test_braces_of_other_languages_can_be_written(tmp_path):
    path = tmp_path / "kernel.jinja"
    path.write_text("{% raw %}int a[2] = {{1}, {2}};{% endraw %} {{ block }}")
    env = ScheduleAction(fake(), str(path), {"block": [1]})
    env.reset()
    assert env.source([0]) == "int a[2] = {{1}, {2}}; 1"


def test_a_recorded_action_is_plain_data(template, tmp_path):
    env = RecordTrajectory(ScheduleAction(fake(), template, KNOBS), str(tmp_path / "run.jsonl"))
    play(env, [np.array([1, 0])])
    assert next(env.store.records()).action == [1, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ block }} {{ warps }} {{ stages }}", "uses stages, for which there is no knob"),
        ("{{ block }}", "does not use the knob warps"),
        ("{{ block ", "has an error in line 1"),
    ],
)
def test_templates_that_do_not_fit(tmp_path, text, said):
    path = tmp_path / "kernel.jinja"
    path.write_text(text)
    with pytest.raises(InvalidOptionError, match=said):
        ScheduleAction(fake(), str(path), KNOBS)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"template": "/no/such/template"}, InvalidOptionError, "cannot be read"),
        ({"template": 3}, InvalidOptionError, "path of a file"),
        ({"knobs": {}}, InvalidOptionError, "knobs must be"),
        ({"knobs": {"block": []}}, InvalidOptionError, "at least one value"),
        ({"knobs": {"block": "abc"}}, InvalidOptionError, "at least one value"),
        ({"knobs": {"task": [1]}}, InvalidOptionError, "other than 'task'"),
        ({"knobs": {"my knob": [1]}}, InvalidOptionError, "identifier"),
        ({"forbidden": [{"blok": 64}]}, UnknownNameError, "Did you mean 'block'"),
        ({"forbidden": [{"block": 65}]}, InvalidOptionError, "no value 65"),
        ({"forbidden": [{}]}, InvalidOptionError, "forbidden must be"),
        ({"forbidden": [{"warps": 4}, {"warps": 8}]}, InvalidOptionError, "leaves no schedule"),
        (
            {"knobs": {"block": list(range(1000)), "warps": list(range(1000))}, "discrete": True},
            InvalidOptionError,
            "1000000 schedules",
        ),
    ],
)
def test_wrong_arguments(template, arguments, error, said):
    with pytest.raises(error, match=said):
        ScheduleAction(fake(), **{"template": template, "knobs": KNOBS, **arguments})


def test_actions_must_be_text(template):
    with pytest.raises(InvalidOptionError, match="actions that are text"):
        ScheduleAction(ScriptedEnv(), template, KNOBS)
