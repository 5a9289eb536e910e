from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env import limits
from kernelgym_env.limits import clip

MARK = re.compile(r" … \[(\d+) characters cut\] … ")


def test_bounds_are_ordered() -> None:
    assert 0 < limits.MAX_FEEDBACK_CHARS < limits.MAX_PROMPT_CHARS
    assert limits.MAX_SOURCE_CHARS > 0


def test_short_text_is_returned_as_it_is() -> None:
    text = "a" * 50
    assert clip(text, 50) is text


@pytest.mark.parametrize("limit", [0, 1, 10, 25])
def test_a_limit_below_the_mark_keeps_the_beginning(limit: int) -> None:
    assert clip("abcdefghij" * 10, limit) == ("abcdefghij" * 10)[:limit]


@pytest.mark.parametrize(("head", "starts", "ends"), [(1.0, True, False), (0.0, False, True), (0.5, True, True)])
def test_head_chooses_the_side(head: float, starts: bool, ends: bool) -> None:
    text = "<" + "x" * 500 + ">"
    cut = clip(text, 100, head=head)
    assert (cut.startswith("<"), cut.endswith(">")) == (starts, ends)


@pytest.mark.parametrize(("limit", "head"), [(-1, 0.5), (10, -0.1), (10, 1.1), (10, float("nan"))])
def test_bad_arguments_raise(limit: int, head: float) -> None:
    with pytest.raises(ValueError, match="clip needs"):
        clip("text", limit, head=head)


@given(st.text(max_size=400), st.integers(0, 400), st.floats(0, 1))
def test_never_longer_than_the_limit(text: str, limit: int, head: float) -> None:
    assert len(clip(text, limit, head=head)) <= limit


@given(st.integers(0, 3000), st.integers(60, 3000), st.floats(0, 1))
def test_the_mark_counts_what_is_missing(length: int, limit: int, head: float) -> None:
    text = "x" * length
    cut = clip(text, limit, head=head)
    if length <= limit:
        assert cut == text
        return
    found = MARK.search(cut)
    assert found is not None
    front, back = cut[: found.start()], cut[found.end() :]
    assert set(front + back) <= {"x"}
    assert int(found.group(1)) == length - len(front) - len(back)
    assert len(cut) == limit


@given(st.text(min_size=200, max_size=400), st.floats(0, 1))
def test_what_is_kept_comes_from_both_ends(text: str, head: float) -> None:
    cut = clip(text, 120, head=head)
    found = [match for match in MARK.finditer(cut)]
    assert any(text.startswith(cut[: match.start()]) and text.endswith(cut[match.end() :]) for match in found)
