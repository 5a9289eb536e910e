import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.episode import Episode, Turn, history_from
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.limits import MAX_FEEDBACK_CHARS, MAX_SOURCE_CHARS

speedups = st.one_of(st.just(math.nan), st.floats(0.01, 100))


@given(st.integers(1, 10), st.lists(speedups, max_size=10))
def test_turns_and_turns_left_always_add_up(turns, results):
    episode = Episode("a/b", turns)
    for speedup in results[:turns]:
        assert not episode.ended
        episode = episode.after(Turn("x", "y", "correct", 1.0, speedup))
        assert episode.turn + episode.turns_left == turns
    assert episode.ended == (len(results) >= turns)
    measured = [speedup for speedup in results[:turns] if not math.isnan(speedup)]
    assert episode.best_speedup == max(measured) if measured else math.isnan(episode.best_speedup)


def test_a_stop_and_a_fault_end_it():
    start = Episode("a/b", 4)
    assert start.after(Turn("x", ""), stop=True).ended
    assert start.after(Turn("x", ""), fault=True).faulted
    assert start.after(Turn("x", ""), stop=True).turns_left == 0


def test_no_turn_after_the_end():
    with pytest.raises(ValueError, match="over"):
        Episode("a/b", 1).after(Turn("x", "")).after(Turn("x", ""))


def test_the_state_before_is_untouched():
    start = Episode("a/b", 2)
    start.after(Turn("x", ""))
    assert start.turn == 0


def test_round_trip_through_json():
    episode = Episode("a/b", 3, history_from([{"action": "a", "feedback": "f"}])).after(
        Turn("x", "y", "correct", 1.5, 1.2, 1.1, 1.3)
    )
    text = json.dumps(episode.to_dict())
    again = Episode.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert (again.turn, again.best_speedup) == (1, 1.2)


@pytest.mark.parametrize(
    "entry", [3, {"action": "x"}, {"action": "x", "feedback": 3}, {"action": "x", "feedback": "", "z": 1}]
)
def test_a_history_of_another_form_is_refused(entry):
    with pytest.raises(InvalidOptionError, match=r"history\[1\]"):
        history_from([{"action": "", "feedback": ""}, entry])


def test_a_history_is_cut_to_the_bounds():
    (turn,) = history_from([{"action": "x" * (MAX_SOURCE_CHARS + 5), "feedback": "y" * (MAX_FEEDBACK_CHARS + 5)}])
    assert len(turn.action) == MAX_SOURCE_CHARS
    assert len(turn.feedback) == MAX_FEEDBACK_CHARS
