import json
import logging
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.errors import InvalidOptionError, NotRecordedError
from kernelgym_env.evaluation.result import Evaluation, Finding, Status, Timing
from kernelgym_env.export import write_rows
from kernelgym_env.store import SCHEMA, Store, TurnRecord


def record(turn=1, episode="e", **values):
    return TurnRecord("run", episode, "KernelGym/RowSum", turn, "prompt", "action", **values)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "new" / "run.jsonl")


def test_a_record_comes_back_as_it_was(store):
    evaluation = Evaluation(
        "a/b",
        Status.CORRECT,
        speedup=2.0,
        error_ratio=math.inf,
        times={"candidate": Timing(50.0, 49.0, 51.0, 10, "fake")},
        findings=(Finding("C1", "soft", "a jump"),),
        provenance={"driver": None, "list": (1, 2)},
    ).to_dict()
    written = record(
        evaluation=evaluation,
        score=2.3,
        reward=np.float64(1.5),
        terminated=True,
        tokens=[1, 2],
        logprobs=np.array([-0.5, -np.inf]),
        versions={"a": "1"},
    )
    store.append(written)
    (read,) = store.records()
    assert (read.score, read.reward, read.terminated, read.tokens) == (2.3, 1.5, True, [1, 2])
    assert read.logprobs == [-0.5, -math.inf]
    assert read.evaluation["error_ratio"] == math.inf
    assert math.isnan(read.evaluation["speedup_compile"])
    assert math.isnan(read.evaluation["times"]["eager"]["median_us"])
    assert read.evaluation["provenance"] == {"driver": None, "list": [1, 2]}
    again = Evaluation.from_dict(read.evaluation)
    assert (again.status, again.findings[0].id, again.times["candidate"].median_us) == (Status.CORRECT, "C1", 50.0)
    assert TurnRecord.from_dict(read.to_dict()).to_dict() == read.to_dict()


def test_lines_are_strict_json(store):
    store.append(record(score=math.nan, reward=-math.inf, evaluation=Evaluation("a/b", Status.WRONG).to_dict()))
    line = store.path.read_text()
    data = json.loads(line, parse_constant=lambda constant: pytest.fail(constant))
    assert (data["score"], data["reward"], data["schema"]) == (None, "-inf", SCHEMA)
    (read,) = store.records()
    assert math.isnan(read.score)
    assert read.reward == -math.inf


@given(st.text(), st.text())
def test_any_text_comes_back(tmp_path_factory, prompt, action):
    store = Store(tmp_path_factory.mktemp("store") / "run.jsonl")
    written = TurnRecord("run", "e", "a/b", 1, [{"role": "user", "content": prompt}], action)
    store.append(written)
    store.append(TurnRecord("run", "e", "a/b", 2, "\ud800 alone", "\n\r\u2028 \0"))
    one, two = store.records()
    assert (one.prompt, one.action) == (written.prompt, action)
    assert (two.prompt, two.action) == ("\ud800 alone", "\n\r\u2028 \0")


def test_episodes_are_in_the_order_of_their_first_turns(store):
    for turn, episode in [(1, "b"), (1, "a"), (2, "b"), (3, "b"), (2, "a")]:
        store.append(record(turn, episode))
    assert [[(r.episode_id, r.turn) for r in episode] for episode in store.episodes()] == [
        [("b", 1), ("b", 2), ("b", 3)],
        [("a", 1), ("a", 2)],
    ]


def test_reading_what_is_not_there(store):
    with pytest.raises(FileNotFoundError):
        list(store.episodes())
    store.path.parent.mkdir()
    store.path.touch()
    assert list(store.episodes()) == []


@pytest.mark.parametrize("cut", [1, 10, 60, -2])
def test_a_torn_last_line_is_ignored_and_the_next_writer_ends_it(store, cut, caplog):
    for turn in (1, 2):
        store.append(record(turn))
    lines = store.path.read_bytes().splitlines(keepends=True)
    store.path.write_bytes(lines[0] + lines[1][:cut])
    with caplog.at_level(logging.WARNING):
        assert [read.turn for read in store.records()] == [1]
    assert not caplog.records  # it may just be being written
    store.append(record(3))
    with caplog.at_level(logging.WARNING):
        assert [read.turn for read in store.records()] == [1, 3]
    assert "line 2 is torn" in caplog.text
    assert store.path.read_bytes().startswith(lines[0] + lines[1][:cut])  # nothing is taken away


def test_a_last_line_that_lacks_only_its_end_counts(store):
    store.append(record(1))
    store.path.write_bytes(store.path.read_bytes().removesuffix(b"\n"))
    assert [read.turn for read in store.records()] == [1]
    store.append(record(2))
    assert [read.turn for read in store.records()] == [1, 2]


def test_a_line_torn_within_a_character(store):
    store.append(record(1))
    store.append(TurnRecord("run", "e", "a/b", 2, "é" * 10, "a"))
    data = store.path.read_bytes()
    store.path.write_bytes(data[: data.rindex("é".encode()) + 1])
    assert [read.turn for read in store.records()] == [1]


def test_newer_records_are_refused_and_unknown_keys_left_out():
    with pytest.raises(InvalidOptionError, match=r"schema 2 is newer than this version reads \(1\)"):
        TurnRecord.from_dict({**record().to_dict(), "schema": 2})
    with pytest.raises(InvalidOptionError, match="prompt, action missing"):
        TurnRecord.from_dict({"run_id": "", "episode_id": "", "task_id": "", "turn": 1})
    assert TurnRecord.from_dict({**record().to_dict(), "parent": "x"}).turn == 1


LONG = 10**400
CORRECT = Evaluation("a/b", Status.CORRECT, speedup=2.0).to_dict()
ODD = [
    *[({"evaluation": {**CORRECT, "speedup": value}}, "speedup") for value in ("inf", "abc", 0, -1, 1e308, LONG, [2])],
    ({"evaluation": {**CORRECT, "speedup_compile": True}}, "speedup_compile must be a number, got True"),
    ({"evaluation": {**CORRECT, "status": "done"}}, "'done' is not a valid Status"),
    ({"evaluation": {**CORRECT, "times": []}}, "times must be an object"),
    ({"evaluation": {**CORRECT, "times": {"eager": 3}}}, "evaluation cannot be read"),
    ({"evaluation": {**CORRECT, "times": {"eager": {"median_us": "x"}}}}, "median_us of eager must be a number"),
    ({"evaluation": {**CORRECT, "times": {"eager": {"mode_us": 1}}}}, "mode_us"),
    ({"evaluation": {**CORRECT, "stages_s": {"build": "x"}}}, "evaluation cannot be read"),
    ({"evaluation": {**CORRECT, "findings": None}}, "findings must be a list"),
    ({"evaluation": {**CORRECT, "findings": [{"id": "C1"}]}}, "evaluation cannot be read"),
    ({"evaluation": {**CORRECT, "feedback": 3}}, "feedback must be a text"),
    ({"evaluation": {**CORRECT, "provenance": "x"}}, "provenance must be an object"),
    ({"evaluation": {"status": "correct"}}, "task_id missing"),
    ({"evaluation": "correct"}, "evaluation must be an object, got 'correct'"),
    ({"evaluation": None}, "evaluation must be an object, got None"),
    *[({"turn": value}, "turn must be a whole number of at least 1") for value in (0, -1, 1.5, "1", True, None)],
    *[({name: 3}, f"{name} must be a text, got 3") for name in ("run_id", "episode_id", "task_id", "parent")],
    *[({name: value}, name) for name in ("score", "reward") for value in ("abc", True, [1.0], LONG)],
    ({"terminated": 1}, "terminated must be true or false, got 1"),
    ({"logprobs": "abc"}, "logprobs must be a list or null"),
    ({"logprobs": [-0.5, "x"]}, "logprobs must be a number, got 'x'"),
    ({"tokens": 3}, "tokens must be a list or null"),
    ({"versions": []}, "versions must be an object"),
]


@pytest.mark.parametrize(("changes", "said"), ODD)
def test_what_is_no_turn_is_refused_with_its_line(store, changes, said):
    store.append(record(1))
    with open(store.path, "a") as file:
        file.write(json.dumps({**record(2).to_dict(), **changes}) + "\n")
    for read in (store.records, store.episodes, store.query):
        with pytest.raises(InvalidOptionError, match=r"^run.jsonl, line 2: .*Mend or remove the line") as caught:
            list(read())
        assert said in str(caught.value)


@pytest.mark.parametrize(("changes", "said"), [ODD[3], ODD[-2]])
def test_the_row_of_a_compacted_store_is_named(tmp_path, changes, said):
    pytest.importorskip("pyarrow")
    rows = [json.dumps({**record(turn).to_dict(), **(changes if turn == 2 else {})}) for turn in (1, 2)]
    write_rows(tmp_path / "turns.parquet", [{"record": row} for row in rows])
    with pytest.raises(InvalidOptionError, match=r"^turns.parquet, row 2: .*Mend or remove the row") as caught:
        list(Store(tmp_path / "turns.parquet").records())
    assert said in str(caught.value)
    write_rows(tmp_path / "turns.parquet", [{"record": row} for row in ("[]", "torn")])
    with pytest.raises(InvalidOptionError, match=r"row 1: Not a record of a turn"):
        list(Store(tmp_path / "turns.parquet").records())


def test_what_could_not_be_read_again_is_not_written(store):
    for odd in (record(0), record(evaluation={**CORRECT, "speedup": 1e13}), record(logprobs=["x"])):
        with pytest.raises(InvalidOptionError):
            store.append(odd)
    assert not store.path.exists()


@given(st.floats(), st.floats(), st.lists(st.floats()))
def test_any_number_comes_back(tmp_path_factory, score, reward, logprobs):
    store = Store(tmp_path_factory.mktemp("store") / "run.jsonl")
    store.append(record(score=score, reward=reward, logprobs=logprobs))
    (read,) = store.records()
    assert repr([read.score, read.reward, *read.logprobs]) == repr([score, reward, *logprobs])


def test_a_turn_that_cannot_be_written_says_where(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotRecordedError, match=r"Turn 1 of e cannot be written to .*run.jsonl"):
        Store(tmp_path / "file" / "run.jsonl").append(record(1))


def test_a_record_that_json_has_no_form_for_writes_nothing(store):
    store.append(record(1))
    size = store.path.stat().st_size
    with pytest.raises(InvalidOptionError, match="action holds a set"):
        store.append(TurnRecord("run", "e", "a/b", 1, "prompt", {1, 2}))
    assert store.path.stat().st_size == size


def _write(path, name, count):
    store = Store(path)
    for turn in range(1, count + 1):
        store.append(TurnRecord("run", name, "a/b", turn, name * 5_000, "action"))


def test_writers_in_processes_and_threads_do_not_mix(store):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(str(store.path), name, 60)) for name in "ab"]
    workers += [threading.Thread(target=_write, args=(str(store.path), name, 60)) for name in "cd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    episodes = list(store.episodes())
    assert sorted(episode[0].episode_id for episode in episodes) == list("abcd")
    for episode in episodes:
        assert [read.turn for read in episode] == list(range(1, 61))
        assert {read.prompt for read in episode} == {episode[0].episode_id * 5_000}


WRITER = """
import sys
from kernelgym_env.store import Store, TurnRecord
store = Store(sys.argv[1])
for turn in range(1, 1_000_000):
    store.append(TurnRecord("run", sys.argv[2], "a/b", turn, "p" * 200_000, "action"))
    print(turn, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_kill_9_loses_no_turn_that_was_appended(store, repo_root):
    said = {}
    for name in ("first", "second", "third"):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.path), name], stdout=subprocess.PIPE, text=True, cwd=repo_root
        )
        assert child.stdout is not None
        for _ in range(20):
            said[name] = int(child.stdout.readline())
        time.sleep(0.003)
        os.kill(child.pid, signal.SIGKILL)
        rest, _ = child.communicate(timeout=60)
        said[name] = max([said[name], *map(int, rest.split()[:-1])])
    store.append(record(1, "last"))
    episodes = {episode[0].episode_id: [read.turn for read in episode] for episode in store.episodes()}
    assert episodes["last"] == [1]
    for name, last in said.items():
        assert episodes[name][:last] == list(range(1, last + 1))
