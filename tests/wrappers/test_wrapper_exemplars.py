import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wrapper_helpers import BAD, GOOD, ScriptedEnv, fake, kernel, play

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.wrappers import Exemplars, RecordTrajectory
from kernelgym_env.wrappers.exemplars import Kernel, buckets, draw

EDGES = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)


def test_two_kernels_of_different_buckets_are_shown_with_their_speedups():
    env = Exemplars(fake(turns=5))
    observation, info = env.reset(seed=0)
    assert np.isnan(info["exemplar_speedups"]).all()
    plain = observation["prompt"]
    play(env, [kernel(0.6), kernel(0.7), BAD, "nothing", kernel(2.5)])
    for seed in range(10):
        observation, info = env.reset(seed=seed)
        slow, fast = info["exemplar_speedups"]
        assert slow in (0.6, 0.7)
        assert fast == 2.5
        assert observation["prompt"].startswith(plain)
        added = observation["prompt"].removeprefix(plain)
        assert added.index(f"speedup {slow:.2f}x") < added.index("speedup 2.50x")
        assert f"```python\n{kernel(2.5)}\n```" in added
        assert "faster one" in added
    assert env.step(GOOD)[0]["prompt"] == observation["prompt"]
    assert observation in env.observation_space


def test_the_choice_is_fixed_by_the_seed_and_leaves_the_environment_s_alone():
    env = Exemplars(fake(turns=8))
    play(env, [kernel(speedup / 4) for speedup in range(1, 9)])
    chosen = [env.reset(seed=seed)[1]["exemplar_speedups"].tolist() for seed in range(20)]
    assert chosen == [env.reset(seed=seed)[1]["exemplar_speedups"].tolist() for seed in range(20)]
    assert len({tuple(pair) for pair in chosen}) > 1
    state = [e.unwrapped.np_random.bit_generator.state for e in (env, fake()) if e.reset(seed=5)]
    assert state[0] == state[1]


def test_one_kernel_is_better_than_none():
    env = Exemplars(fake())
    play(env, [kernel(1.2), kernel(1.3)])
    observation, info = env.reset(seed=1)
    assert info["exemplar_speedups"][0] in (1.2, 1.3)
    assert np.isnan(info["exemplar_speedups"][1])
    assert "what it leaves undone" in observation["prompt"]


def test_they_come_from_a_file(tmp_path):
    path = str(tmp_path / "run.jsonl")
    recorder = RecordTrajectory(fake(), path)
    play(recorder, [f"Fused.\n```python\n{kernel(0.7)}\n```", BAD, kernel(2.5), kernel(2.5)])
    env = Exemplars(fake(), path=path, collect=False)
    _, info = env.reset(seed=0)
    assert info["exemplar_speedups"].tolist() == [0.7, 2.5]
    assert [entry.source for entry in env.kernels["KernelGym/ElementwiseChain"]] == [f"{kernel(0.7)}\n", kernel(2.5)]
    play(env, [kernel(9.0)])
    assert len(env.kernels["KernelGym/ElementwiseChain"]) == 2  # collects nothing


def test_kernels_of_another_task_are_not_shown():
    env = Exemplars(fake())
    env.kernels = {"KernelGym/RowSum": [Kernel("a", 1.0), Kernel("b", 3.0)]}
    _, info = env.reset()
    assert np.isnan(info["exemplar_speedups"]).all()


@given(st.lists(st.floats(0.01, 20), max_size=30), st.integers(1, 4), st.integers(0, 1000))
def test_what_is_drawn_lies_in_different_buckets(speedups, count, seed):
    kernels = [Kernel(str(index), speedup) for index, speedup in enumerate(speedups)]
    groups = buckets(kernels, EDGES)
    drawn = draw(kernels, count, EDGES, 1.0, np.random.default_rng(seed))
    assert len(drawn) == min(count, len(groups))
    places = [next(i for i, group in enumerate(groups) if kernel in group) for kernel in drawn]
    assert places == sorted(set(places))


def test_faster_buckets_are_drawn_more_often_and_a_high_temperature_evens_it():
    kernels = [Kernel("a", 0.4), Kernel("b", 1.2), Kernel("c", 2.4)]
    rng = np.random.default_rng(0)
    shares = {}
    for temperature in (1.0, 1000.0):
        drawn = [draw(kernels, 1, EDGES, temperature, rng)[0].source for _ in range(2000)]
        shares[temperature] = [drawn.count(name) / 2000 for name in "abc"]
    weights = np.exp([0.4, 1.2, 2.4])
    assert shares[1.0] == pytest.approx(weights / weights.sum(), abs=0.04)
    assert shares[1000.0] == pytest.approx([1 / 3] * 3, abs=0.04)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"count": 0}, "count must be"),
        ({"edges": [2.0, 1.0]}, "edges must rise"),
        ({"edges": [1.0, 1.0]}, "edges must rise"),
        ({"edges": [0.0]}, "an edge must be"),
        ({"temperature": 0}, "temperature must be"),
        ({"collect": False}, "needs a source"),
        ({"path": "/no/such/file"}, "there is no file '/no/such/file'"),
        ({"path": 3}, "path must be"),
    ],
)
def test_wrong_arguments(arguments, said):
    with pytest.raises(InvalidOptionError, match=said):
        Exemplars(fake(), **arguments)


def test_another_form_of_observations_is_refused():
    with pytest.raises(InvalidOptionError, match="dicts with prompt, history"):
        Exemplars(ScriptedEnv())
