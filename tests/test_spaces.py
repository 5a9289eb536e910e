from __future__ import annotations

import copy
import pickle
import re
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple, flatdim, flatten, flatten_space, unflatten
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.limits import MAX_SOURCE_CHARS
from kernelgym_env.spaces import UnicodeText

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))  # surrogates too: they are characters of a str
OBSERVATION = Dict({"prompt": UnicodeText(100), "turn": Discrete(5)})


class Echo(gym.Env[dict[str, Any], str]):
    """Observes the action, so that a test sees what a vector environment does to text."""

    observation_space = OBSERVATION
    action_space = UnicodeText(100)
    metadata: dict[str, Any] = {"render_modes": []}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        return {"prompt": "“début”", "turn": np.int64(0)}, {}

    def step(self, action: str) -> Any:
        return {"prompt": action, "turn": np.int64(1)}, 0.0, False, False, {}


# --- membership


@given(ANY_TEXT, st.integers(0, 30), st.integers(0, 30))
def test_membership_is_a_matter_of_length(text: str, low: int, more: int) -> None:
    space = UnicodeText(low + more, min_length=low)
    assert (text in space) == (low <= len(text) <= low + more)


@pytest.mark.parametrize("other", [None, 3, b"bytes", ["a"], ("a",), np.array("a"), 1.5])
def test_other_types_are_no_members(other: object) -> None:
    assert other not in UnicodeText(10)


def test_subclasses_of_str_are_members() -> None:
    assert np.str_("é") in UnicodeText(1)


def test_membership_is_quick() -> None:
    space, text = UnicodeText(MAX_SOURCE_CHARS), "é" * MAX_SOURCE_CHARS
    start = time.perf_counter()
    assert all(text in space for _ in range(1000))
    assert time.perf_counter() - start < 0.1


@pytest.mark.parametrize(("low", "high"), [(3, 2), (-1, 2), (0, -1), (0, 2.0), (0, "2"), (None, 2)])
def test_bad_bounds_raise(low: Any, high: Any) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(f"min_length={low!r}, max_length={high!r}")):
        UnicodeText(high, min_length=low)


def test_bounds_may_be_integers_of_numpy() -> None:
    assert UnicodeText(np.int64(4), min_length=np.int32(1)) == UnicodeText(4, min_length=1)


# --- samples


@given(st.integers(0, 600), st.integers(0, 600), st.integers(0, 2**32 - 1))
def test_samples_are_members_and_bounded(low: int, more: int, seed: int) -> None:
    space = UnicodeText(low + more, min_length=low, seed=seed)
    sample = space.sample()
    assert sample in space
    assert len(sample) <= max(low, 256)
    assert all(character == "\n" or " " <= character <= "~" for character in sample)


def test_samples_follow_the_seed() -> None:
    one, two = UnicodeText(1000, seed=5), UnicodeText(1000, seed=5)
    assert [one.sample() for _ in range(5)] == [two.sample() for _ in range(5)]
    one.seed(7)
    two.seed(8)
    assert one.sample() != two.sample()


def test_samples_are_quick_and_small_for_the_longest_source() -> None:
    space = UnicodeText(MAX_SOURCE_CHARS, seed=0)
    start = time.perf_counter()
    samples = [space.sample() for _ in range(100)]
    assert time.perf_counter() - start < 0.5
    assert max(map(len, samples)) <= 256


def test_samples_define_no_model() -> None:
    space = UnicodeText(MAX_SOURCE_CHARS, seed=0)
    for _ in range(300):
        sample = space.sample()
        assert "ModelNew" not in sample
        assert "```" not in sample or sample.count("```") < 2


def test_a_mask_gives_length_and_characters() -> None:
    space = UnicodeText(1000, seed=0)
    only_a = np.array([character == "a" for character in space.character_list], dtype=np.int8)
    assert space.sample(mask=(4, only_a)) == "aaaa"
    assert set(space.sample(mask=(None, only_a))) <= {"a"}
    assert len(space.sample(mask=(999, None))) == 999
    assert len(space.sample(mask=(None, None))) <= 256
    assert space.sample(mask=(3, np.zeros(96, dtype=np.int8))) == ""


def test_a_probability_gives_length_and_characters() -> None:
    space = UnicodeText(1000, seed=0)
    only_b = np.array([character == "b" for character in space.character_list], dtype=np.float64)
    assert space.sample(probability=(3, only_b)) == "bbb"
    assert set(space.sample(probability=(None, only_b))) <= {"b"}


@pytest.mark.parametrize("mask", [3, "ab", (1,), (2000, None), (1, np.ones(5, dtype=np.int8)), (None, [1] * 96)])
def test_a_bad_mask_raises(mask: Any) -> None:
    with pytest.raises(AssertionError, match="mask|length"):
        UnicodeText(1000).sample(mask=mask)


def test_mask_and_probability_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="Only one"):
        UnicodeText(10).sample(mask=(None, None), probability=(None, None))


# --- identity


def test_equality_is_by_bounds() -> None:
    assert UnicodeText(5) == UnicodeText(5, seed=3)
    assert UnicodeText(5) != UnicodeText(6)
    assert UnicodeText(5) != UnicodeText(5, min_length=1)
    lookalike = Text(5, min_length=0, charset="".join(UnicodeText(5).character_list))
    assert UnicodeText(5) != lookalike
    assert lookalike != UnicodeText(5)
    assert UnicodeText(5) != "UnicodeText(0, 5)"


def test_equal_spaces_hash_alike() -> None:
    assert len({UnicodeText(5), UnicodeText(5, seed=1), UnicodeText(6)}) == 2


def test_repr_is_short_and_evaluates_to_the_bounds() -> None:
    assert repr(UnicodeText(MAX_SOURCE_CHARS)) == f"UnicodeText(0, {MAX_SOURCE_CHARS})"


def test_pickles_small_and_keeps_its_state() -> None:
    space = UnicodeText(MAX_SOURCE_CHARS, min_length=2, seed=4)
    data = pickle.dumps(space)
    assert len(data) < 10_000
    for other in (pickle.loads(data), copy.deepcopy(space)):
        assert other == space
        assert other.sample() == pickle.loads(data).sample()


# --- vector environments


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_batches_are_tuples_of_strings(texts: list[str]) -> None:
    space = UnicodeText(20, seed=0)
    batched = batch_space(space, len(texts))
    assert isinstance(batched, Tuple)
    assert all(isinstance(member, UnicodeText) for member in batched.spaces)
    joined = concatenate(space, texts, create_empty_array(space, len(texts)))
    assert joined == tuple(texts)
    assert joined in batched
    assert list(iterate(batched, joined)) == texts


def test_an_empty_array_is_a_member() -> None:
    assert create_empty_array(UnicodeText(9), n=2) in batch_space(UnicodeText(9), 2)
    assert create_empty_array(UnicodeText(9, min_length=3), n=2) in batch_space(UnicodeText(9, min_length=3), 2)


def test_batches_within_a_dict() -> None:
    batched = batch_space(OBSERVATION, 2)
    items = [{"prompt": "é", "turn": np.int64(1)}, {"prompt": "", "turn": np.int64(2)}]
    joined = concatenate(OBSERVATION, items, create_empty_array(OBSERVATION, 2))
    assert joined in batched
    assert [dict(item) for item in iterate(batched, joined)] == items


def test_differing_spaces_batch() -> None:
    batched = batch_differing_spaces([UnicodeText(3), UnicodeText(5)])
    assert batched == Tuple([UnicodeText(3), UnicodeText(5)])
    assert ("abc", "abcde") in batched
    assert ("abcd", "") not in batched


@pytest.mark.parametrize("space", [UnicodeText(5), OBSERVATION, Tuple([Discrete(2), UnicodeText(5)])])
def test_shared_memory_is_refused(space: gym.Space[Any]) -> None:
    with pytest.raises(CustomSpaceError, match="shared_memory=False"):
        create_shared_memory(space, n=2)


def test_shared_memory_is_refused_at_each_step() -> None:
    with pytest.raises(CustomSpaceError, match="shared_memory=False"):
        read_from_shared_memory(UnicodeText(5), None, n=2)
    with pytest.raises(CustomSpaceError, match="shared_memory=False"):
        write_to_shared_memory(UnicodeText(5), 0, "a", None)


def test_async_vector_env_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="shared_memory=False") as raised:
        AsyncVectorEnv([Echo, Echo], shared_memory=True)
    assert isinstance(raised.value.__cause__, CustomSpaceError)
    assert "UnicodeText(0, 100)" in str(raised.value.__cause__)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_vector_envs_return_the_text_itself(kind: str) -> None:
    actions = ("né ☃ 中文 \U0001f680", "")
    vector = SyncVectorEnv([Echo, Echo]) if kind == "sync" else AsyncVectorEnv([Echo, Echo], shared_memory=False)
    try:
        observations, _ = vector.reset(seed=1)
        assert observations["prompt"] == ("“début”", "“début”")
        observations = vector.step(actions)[0]
        assert observations["prompt"] == actions
        assert observations in vector.observation_space
    finally:
        vector.close()


def test_plain_text_is_left_to_gymnasium() -> None:
    assert create_shared_memory(Text(5), n=2) is not None


# --- flattening


def test_flattening_leaves_text_as_it_is() -> None:
    flat = flatten_space(OBSERVATION)
    assert isinstance(flat, Dict)
    assert flat["prompt"] == UnicodeText(100)
    assert isinstance(flat["turn"], Box)
    item = {"prompt": "né", "turn": np.int64(2)}
    assert flatten(OBSERVATION, item) in flat
    assert unflatten(OBSERVATION, flatten(OBSERVATION, item)) == item


@pytest.mark.parametrize("space", [UnicodeText(5), OBSERVATION])
def test_there_is_no_flat_size(space: gym.Space[Any]) -> None:
    assert not space.is_np_flattenable
    with pytest.raises(ValueError, match="flat"):
        flatdim(space)


def test_equivalence_is_by_kind_and_length() -> None:
    assert is_space_dtype_shape_equiv(UnicodeText(5), UnicodeText(5))
    assert not is_space_dtype_shape_equiv(UnicodeText(5), UnicodeText(6))
    assert not is_space_dtype_shape_equiv(UnicodeText(5), Text(5, charset="".join(UnicodeText(5).character_list)))


def test_the_checker_of_gymnasium_finds_nothing() -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(Echo(), skip_render_check=True)
