"""Rows for trainers, the store's questions, and Parquet files that other libraries read."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.result import Evaluation, Finding, Status
from kernelgym_env.export import KINDS, Keep, export, write_rows
from kernelgym_env.rewards import kevin
from kernelgym_env.store import Store, TurnRecord

PROMPT = [{"role": "user", "content": "Write a kernel."}]


def record(turn, action, status=Status.CORRECT, speedup=math.nan, *, episode="e", task="a/b", **values):
    findings = values.pop("findings", ())
    evaluation = Evaluation(task, status, speedup=speedup, findings=findings)
    fault = status is Status.FAULT
    return TurnRecord(
        *("run", episode, task, turn, values.pop("prompt", PROMPT), action, evaluation.to_dict(), kevin(evaluation)),
        **{"reward": kevin(evaluation), "valid": not fault, "truncated": fault, **values},
    )


def ended(*records):
    *rest, last = records
    return [*rest, TurnRecord(**{**vars(last), "terminated": last.valid})]


EPISODES = [
    ended(record(1, "x = 1", Status.WRONG), record(2, "x = 2", speedup=1.0), record(3, "x = 3", speedup=1.5)),
    ended(
        record(1, "x = 4", Status.WRONG, episode="f"), *[record(n, "x = 4", Status.WRONG, episode="f") for n in (2, 3)]
    ),
]


def said(rows, column="completion"):
    return [row[column][0]["content"] for row in rows]


def test_sft_takes_the_best_turn_of_each_episode_and_rft_every_kept_one():
    assert said(export(EPISODES, "sft")) == ["x = 3"]
    assert said(export(EPISODES, "rft")) == ["x = 2", "x = 3"]
    (row,) = export(EPISODES, "sft")
    assert row["prompt"] == PROMPT
    assert (row["task_id"], row["episode_id"], row["turn"], row["score"]) == ("a/b", "e", 3, 1.8)
    assert row["completion"][0]["role"] == "assistant"


def test_what_is_kept():
    noticed = record(1, "x = 5", speedup=9.0, findings=(Finding("C1", "soft", "a jump"),))
    noted = record(2, "x = 6", speedup=2.0, findings=(Finding("N1", "note", "a note"),))
    fault = record(3, "x = 7", Status.FAULT)
    episode = [noticed, noted, fault]
    assert said(export([episode], "rft")) == ["x = 6"]
    assert said(export([episode], "rft", keep=Keep(findings=True))) == ["x = 5", "x = 6"]
    assert said(export([episode], "rft", keep=Keep(above=2.3))) == []
    assert said(export([episode], "rft", keep=Keep(above=-1, findings=True))) == ["x = 5", "x = 6"]
    with pytest.raises(InvalidOptionError, match="NaN"):
        Keep(above=math.nan)


def test_the_same_program_on_a_task_is_kept_once_the_best_of_it():
    same = [[record(1, "x = 1  # slow", speedup=1.0)], [record(1, "x  =  1", speedup=2.0, episode="f")]]
    assert said(export(same, "rft")) == ["x  =  1"]
    assert len(export(same, "rft", keep=Keep(deduplicate=False))) == 2
    other = [*same, [record(1, "x = 1", speedup=1.0, episode="g", task="c/d")]]
    assert len(export(other, "rft")) == 2


def test_dpo_pairs_replies_to_the_same_prompt():
    alone = {"prompt": "another prompt"}
    episodes = [
        [record(1, "x = 1", speedup=1.0)],
        [record(1, "x = 2", speedup=3.0, episode="f")],
        [record(1, "x = 2  # noise", speedup=0.1, episode="g")],  # the chosen program once more: no pair with itself
        [record(1, "x = 3", speedup=0.5, episode="h")],
        [record(1, "x = 4", speedup=9.0, episode="i", **alone)],
    ]
    (pair,) = export(episodes, "dpo")
    assert (said([pair], "chosen"), said([pair], "rejected")) == (["x = 2"], ["x = 3"])
    assert (pair["score"], pair["rejected_score"]) == (3.3, 0.8)
    episodes[3] = [record(1, "x = 3", Status.FAULT, episode="h")]
    assert said(export(episodes, "dpo"), "rejected") == ["x = 1"]


def test_scores_without_a_value_are_left_out():
    nan = TurnRecord(**{**vars(record(1, "x = 9", Status.WRONG)), "score": math.nan})
    (pair,) = export([[nan], [record(1, "x = 1", speedup=1.0)], [record(1, "x = 2", Status.WRONG)]], "dpo")
    assert said([pair], "rejected") == ["x = 2"]
    assert said(export([[nan]], "rft", keep=Keep(above=-math.inf))) == []


def test_turns_have_kevins_returns_and_advantages_of_the_worked_example():
    rows = export(EPISODES, "turns")
    assert [row["return"] for row in rows] == pytest.approx([0.808, 2.02, 1.8, 0, 0, 0])
    assert [row["advantage"] for row in rows] == pytest.approx([0.0428, 1.457543, 1.200742, *[-0.900362] * 3], abs=1e-6)
    assert {row["group"] for row in rows} == {"a/b"}
    assert [row["response"] for row in rows[:3]] == ["x = 1", "x = 2", "x = 3"]
    assert rows[0]["tokens"] is rows[0]["logprobs"] is None


def test_turns_leave_out_faults_and_episodes_that_go_on():
    going = [record(1, "x = 1", speedup=1.0, episode="g")]
    lost = [record(1, "x = 2", speedup=1.0, episode="h"), record(2, "x = 3", Status.FAULT, episode="h")]
    rows = export([going, lost], "turns", recipe="dr_kernel")
    assert [(row["episode_id"], row["turn"]) for row in rows] == [("h", 1)]


def test_turns_carry_log_probabilities():
    episode = ended(TurnRecord(**{**vars(record(1, "x", speedup=1.0)), "tokens": [1, 2], "logprobs": [-0.5, -1.0]}))
    (row,) = export([episode], "turns")
    assert (row["tokens"], row["logprobs"]) == ([1, 2], [-0.5, -1.0])


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="dpo, rft, sft, turns"):
        export(EPISODES, "ppo")
    with pytest.raises(UnknownNameError, match="Did you mean 'kevin'"):
        export(EPISODES, "turns", recipe="kevni")


# --- files


@pytest.mark.parametrize("kind", KINDS)
def test_files_hold_the_rows(tmp_path, kind):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = export([*EPISODES, [record(1, "x = 8", Status.WRONG, episode="g"), record(2, "x = 9", speedup=2.0)]], kind)
    write_rows(tmp_path / "new" / "rows.jsonl", rows)
    lines = (tmp_path / "new" / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    write_rows(tmp_path / "rows.parquet", rows)
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == rows


@given(st.lists(st.text(), min_size=1, max_size=3), st.floats())
def test_any_text_and_number_is_a_line_of_strict_json(tmp_path_factory, texts, number):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    write_rows(path, [{"text": text, "number": number, "surrogate": "\ud800"} for text in texts])
    read = [json.loads(line, parse_constant=pytest.fail) for line in path.read_bytes().splitlines()]
    assert [row["text"] for row in read] == texts
    assert all(row["number"] == (number if math.isfinite(number) else None) for row in read)


def test_a_file_that_cannot_be_written_leaves_the_one_before(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, [{"a": 1}])
    with pytest.raises(TypeError):
        write_rows(path, [{"a": 1}, {"a": {1, 2}}])
    assert path.read_text() == '{"a": 1}\n'
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("rows", [[], [{"a": "text"}, {"a": ["list"]}], [{"a": "\ud800"}]])
def test_what_parquet_has_no_form_for(tmp_path, rows):
    pytest.importorskip("pyarrow")
    with pytest.raises(InvalidOptionError, match="write JSON lines"):
        write_rows(tmp_path / "rows.parquet", rows)
    assert list(tmp_path.iterdir()) == []


# --- the store's questions


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "turns.jsonl")
    for episode in EPISODES:
        for entry in episode:
            store.append(entry)
    store.append(record(1, "x = 3  # again", speedup=1.2, episode="g"))
    store.append(record(1, "x = 7", speedup=4.0, episode="h", task="c/d"))
    store.append(TurnRecord("other", "i", "a/b", 1, PROMPT, "<stop>", terminated=True))
    return store


def test_query(store):
    assert len(list(store.query())) == 9
    assert [entry.action for entry in store.query(task_id="c/d")] == ["x = 7"]
    assert len(list(store.query(status="wrong"))) == 4
    assert [entry.action for entry in store.query(status="")] == ["<stop>"]
    assert [entry.action for entry in store.query(run_id="other")] == ["<stop>"]
    assert list(store.query(run_id="other", status="correct")) == []
    with pytest.raises(UnknownNameError, match="Did you mean 'wrong'"):
        store.query(status="wrnog")


def test_best(store):
    assert [entry.action for entry in store.best("a/b", 5)] == ["x = 3", "x = 2"]
    assert [entry.action for entry in store.best("a/b")] == ["x = 3"]
    assert store.best("e/f") == []
    with pytest.raises(InvalidOptionError, match="got 0"):
        store.best("a/b", 0)


def test_parquet_is_the_same_store(store, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert store.to_parquet(tmp_path / "turns.parquet") == 9
    compact = Store(tmp_path / "turns.parquet")
    assert [entry.to_dict() for entry in compact.records()] == [entry.to_dict() for entry in store.records()]
    assert [len(episode) for episode in compact.episodes()] == [len(episode) for episode in store.episodes()]
    assert compact.export("rft") == store.export("rft")
    assert compact.best("a/b")[0].action == "x = 3"
    table = parquet.read_table(tmp_path / "turns.parquet", columns=["status", "speedup", "task_id"])
    assert table.filter(pyarrow_field("speedup") > 1.4).num_rows == 2
    with pytest.raises(InvalidOptionError, match="compacted"):
        compact.append(EPISODES[0][0])
    with pytest.raises(InvalidOptionError, match=r"must end with \.parquet, got"):
        store.to_parquet(tmp_path / "turns.csv")


def pyarrow_field(name):
    import pyarrow.compute

    return pyarrow.compute.field(name)


def test_a_file_that_is_no_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "turns.parquet").write_bytes(b"no table")
    with pytest.raises(InvalidOptionError, match=r"turns.parquet cannot be read as Parquet"):
        list(Store(tmp_path / "turns.parquet").records())
    write_rows(tmp_path / "other.parquet", [{"a": 1}])
    with pytest.raises(InvalidOptionError, match=r"other.parquet .* no column 'record'"):
        list(Store(tmp_path / "other.parquet").records())
