"""Stored results judged again: what is read, what can be judged, what agrees, and the command."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.cli import main
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.policies.choosing import SamplerPolicy
from kernelgym_env.pools.fake import FakePool
from kernelgym_env.search import best_of_n
from kernelgym_env.store import Store, TurnRecord
from kernelgym_env.tasks import load_task
from kernelgym_env.validation import CannotJudgeError, Stored, compare, read, resubmission
from kernelgym_env.wrappers import RecordTrajectory

TASK = load_task("KernelGym/RowSum")
STRICT = get_protocol("strict")
FAST = "# fake: speedup=2\nclass ModelNew: ...\n"
WRONG = "# fake: status=wrong\nclass ModelNew: ...\n"


class CpuPool(FakePool):
    """The fake pool, which says of its results what a judge on a CPU would."""

    submissions: list[Submission]

    def __init__(self, threads: int = 0, **sandbox: Any) -> None:
        super().__init__()

    def submit(self, submission: Submission, priority: int = 0) -> Any:
        CpuPool.submissions.append(submission)
        future: Future[Evaluation] = Future()
        future.set_result(stored_on_a_cpu(super().submit(submission, priority).result(), submission))
        return future


def stored_on_a_cpu(evaluation: Evaluation, submission: Submission) -> Evaluation:
    hardware = {"name": "a CPU", "threads": "2"}
    return dataclasses.replace(
        evaluation,
        device="cpu",
        task_hash=submission.task.for_device("cpu").hash,
        provenance={"backend": "torch", "protocol": STRICT.to_dict(), "hardware": hardware},
    )


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> list[Submission]:
    """Let the command judge with the fake pool; the list holds the submissions."""
    CpuPool.submissions = []
    monkeypatch.setattr("kernelgym_env.pools.local.LocalPool", CpuPool)
    monkeypatch.setenv("COLUMNS", "200")
    return CpuPool.submissions


def record(judged: str = FAST, task: Any = TASK, **changes: Any) -> dict[str, Any]:
    """What the command `eval` would have printed, with some of it changed."""
    submission = Submission(task, judged)
    evaluation = FakePool().submit(submission).result()
    return {**stored_on_a_cpu(evaluation, submission).to_dict(), "source": judged, "library_ops": None, **changes}


def written(folder: Path, *records: Any, name: str = "records.jsonl") -> str:
    path = folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return str(path)


def judged(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["validate", *arguments, "--json"])
    printed = capsys.readouterr()
    assert code in (0, 1, 3), printed.err
    return code, json.loads(printed.out)


# --- reading


@pytest.mark.parametrize(
    ("name", "content", "names"),
    [
        ("one.json", record(), ["one.json"]),
        ("list.json", [record(), record(WRONG)], ["list.json:1", "list.json:2"]),
        ("results.json", {"benchmark": "mine", "results": [record(), record()]}, ["results.json:1", "results.json:2"]),
        ("records.json", {"records": [record()]}, ["records.json"]),
        ("empty.json", [], []),
    ],
)
def test_documents(name: str, content: Any, names: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    found = read(tmp_path / name)
    assert [stored.name for stored in found] == names
    for stored in found:
        assert stored.evaluation.source_hash == Submission(TASK, stored.sources[0]).source_hash


def test_lines_plain_and_gzipped(tmp_path: Path) -> None:
    path = Path(written(tmp_path, record(), record(WRONG)))
    path.write_text(path.read_text() + '\n{"task_id": "torn', encoding="utf-8")
    packed = tmp_path / "records.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for name in (path, packed):
        found = read(name)
        assert [stored.name for stored in found] == [f"{name.name}:1", f"{name.name}:2"]
        assert [stored.evaluation.status for stored in found] == [Status.CORRECT, Status.WRONG]


def test_numbers_that_json_lacks_are_read_as_such(tmp_path: Path) -> None:
    (stored,) = read(Path(written(tmp_path, record(speedup=None, coverage=None))))
    assert math.isnan(stored.evaluation.speedup)
    assert math.isnan(stored.evaluation.coverage)


def test_turns_of_a_trajectory(tmp_path: Path) -> None:
    env = RecordTrajectory(gym.make("KernelGym/Fake-v0", turns=3), str(tmp_path / "run.jsonl"))
    env.reset(seed=0)
    env.step(f"Faster:\n```python\n{FAST}```\n")
    env.step(WRONG)
    env.step("<stop>")
    found = read(tmp_path / "run.jsonl")
    assert [stored.evaluation.status for stored in found] == [Status.CORRECT, Status.WRONG]
    for stored, source in zip(found, (FAST, WRONG), strict=True):
        assert source in stored.sources
        with pytest.raises(CannotJudgeError, match="it was judged on 'fake', which is no device"):
            resubmission(stored, {})


def test_the_folder_of_a_run(tmp_path: Path) -> None:
    env = RecordTrajectory(gym.make("KernelGym/Fake-v0", turns=2), str(tmp_path / "turns.jsonl"))
    env.reset(seed=0)
    env.step(WRONG)
    assert [stored.name for stored in read(tmp_path)] == ["turns.jsonl:1"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidOptionError, match="cannot be read: it is a folder without turns"):
        read(tmp_path / "empty")


def test_the_folder_of_a_search_and_that_of_several(tmp_path: Path) -> None:
    for name in ("RowSum", "RowSoftmax"):
        folder = tmp_path / f"KernelGym-{name}"
        best_of_n(f"KernelGym/{name}", SamplerPolicy(), 2, pool="fake", folder=folder)
        assert [stored.name for stored in read(folder)] == ["turns.jsonl:1", "turns.jsonl:2"]
    found = [stored.name for stored in read(tmp_path)]
    assert found == [f"KernelGym-{name}/turns.jsonl:{line}" for name in ("RowSoftmax", "RowSum") for line in (1, 2)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1]", "x.json is no result: it is a int"),
        ("3", "holds a int, no result"),
        ('{"results": 3}', "task_id, status missing"),
        ('{"task_id": "a/b"}', "Not an evaluation record: status missing"),
        ('{"task_id": "a/b", "status": "good"}', "'good' is not a valid Status"),
        ('{"task_id": "a/b", "status": "wrong", "schema": 99}', "schema 99 is newer"),
        ('{"task_id": "a/b", "status": "wrong", "times": 3}', "x.json is no result that can be read"),
        ('{"evaluation": {"task_id": "a/b"}}', "Not a record of a turn"),
        ("{", "is no JSON"),
    ],
)
def test_what_is_no_record(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content, encoding="utf-8")
    with pytest.raises(InvalidOptionError, match=said):
        read(tmp_path / "x.json")


def test_what_is_not_gzip(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(b"{}")
    with pytest.raises(InvalidOptionError, match=r"'.*x\.jsonl\.gz' cannot be read: Not a gzipped file"):
        read(tmp_path / "x.jsonl.gz")


# --- what is judged again


def one(**changes: Any) -> Stored:
    data = record(**changes)
    source = data["source"]
    return Stored("x", Evaluation.from_dict(data), () if source is None else (source,), data["library_ops"])


def test_the_same_submission_is_made() -> None:
    constants = STRICT.replace(trials=1, name="mine").to_dict()
    provenance = {"protocol": constants, "backend": "cpp", "hardware": {}}
    found = resubmission(one(provenance=provenance, library_ops="allow"), {})
    assert (found.task, found.source, found.device) == (TASK, FAST, "cpu")
    assert (found.backend, found.library_ops) == ("cpp", "allow")
    assert found.protocol == STRICT.replace(trials=1, name="mine")
    assert resubmission(one(provenance={}), {}).protocol == STRICT
    assert resubmission(one(), {}).backend == "auto"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "fault"}, "a fault says nothing about the submission"),
        ({"device": "simulated"}, "it was judged on 'simulated', which is no device"),
        ({"task_id": "File/mine"}, "its task 'File/mine' is in no suite, and was not given"),
        ({"task_hash": ""}, "it lacks the hash of its task"),
        ({"task_hash": "0" * 64}, "its task has changed since"),
        ({"source": None}, "it does not hold the source"),
        ({"source_hash": "0" * 64}, "its source is not the one that was judged"),
        ({"library_ops": "some"}, "Unknown library_ops 'some'"),
        ({"provenance": {"protocol": {"name": "older"}}}, "its protocol has other constants"),
        ({"provenance": {"protocol": {**STRICT.to_dict(), "speed": 3}}}, "its protocol has other constants.*speed"),
        ({"provenance": {}, "protocol": "strict+custom"}, "Unknown protocol 'strict.custom'"),
    ],
)
def test_what_cannot_be_judged_again(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CannotJudgeError, match=said):
        resubmission(one(**changes), {})


def test_a_device_of_another_kind() -> None:
    with pytest.raises(CannotJudgeError, match="it was judged on cpu, and cuda:0 is another kind of device"):
        resubmission(one(), {}, "cuda:0")
    assert resubmission(one(), {}, "cpu").device == "cpu"
    with pytest.raises(CannotJudgeError, match="its task has changed"):  # it has other sizes there
        resubmission(one(device="cuda:1"), {})
    assert resubmission(one(device="cuda:1", task_hash=TASK.for_device("cuda").hash), {}).device == "cuda"


def test_a_task_that_is_given() -> None:
    mine = dataclasses.replace(TASK, id="File/mine")
    stored = one(task=mine)
    assert resubmission(stored, {"File/mine": mine}).task is mine
    changed = dataclasses.replace(mine, source=mine.source + "\nOTHER = 1\n")
    with pytest.raises(CannotJudgeError, match="its task has changed since"):
        resubmission(stored, {"File/mine": changed})


def test_the_source_of_an_action_is_the_one_that_was_judged() -> None:
    stored = one()
    either = dataclasses.replace(stored, sources=("something else", FAST))
    assert resubmission(either, {}).source == FAST


# --- what agrees


def timed(speedup: float, low: float, high: float, **changes: Any) -> Evaluation:
    return Evaluation("a/b", Status.CORRECT, speedup=speedup, speedup_low=low, speedup_high=high, **changes)


HERE = {"hardware": {"name": "NVIDIA H200", "threads": None}}


@pytest.mark.parametrize(
    ("again", "agree", "why"),
    [
        (timed(2.0, 1.95, 2.05), True, ""),
        (timed(2.09, 2.05, 2.15), True, ""),
        (timed(2.2, 1.99, 2.3), True, ""),
        (timed(2.2, 2.01, 2.3), False, "it is faster now"),
        (timed(1.91, 1.89, 1.95), True, ""),
        (timed(1.8, 1.7, 1.99), False, "it is slower now"),
        (Evaluation("a/b", Status.CORRECT), False, "it has a speedup only then"),
        (Evaluation("a/b", Status.WRONG), False, "correct then, wrong now"),
        (Evaluation("a/b", Status.FAULT, fault="line\nno memory\n"), None, "no memory"),
        (Evaluation("a/b", Status.FAULT), None, "a fault"),
    ],
)
def test_agreement(again: Evaluation, agree: bool | None, why: str) -> None:
    found = compare(timed(2.0, 1.9, 2.1), again)
    assert (found.agree, found.why) == (agree, why)


def test_verdicts_without_a_speedup() -> None:
    wrong, untimed = Evaluation("a/b", Status.WRONG), Evaluation("a/b", Status.CORRECT)
    assert compare(wrong, wrong).agree
    assert compare(untimed, untimed).agree
    assert compare(untimed, timed(2.0, 1.9, 2.1)).why == "it has a speedup only now"


def test_a_speedup_without_an_interval_is_a_point() -> None:
    stored = Evaluation("a/b", Status.CORRECT, speedup=2.0)
    assert compare(stored, timed(2.1, 1.99, 2.2)).agree
    assert not compare(stored, timed(2.1, 2.01, 2.2)).agree
    assert not compare(timed(2.1, 2.01, 2.2), Evaluation("a/b", Status.CORRECT, speedup=2.0)).agree


def test_on_other_hardware_statuses_alone_are_compared() -> None:
    stored = timed(2.0, 1.9, 2.1, provenance=HERE)
    other = timed(9.0, 8.9, 9.1, provenance={"hardware": {"name": "NVIDIA A100-SXM4-80GB"}})
    found = compare(stored, other)
    assert found.agree
    assert found.why == "speedups were not compared: name NVIDIA H200 then, NVIDIA A100-SXM4-80GB now"
    assert compare(stored, dataclasses.replace(other, status=Status.WRONG)).agree is False
    assert compare(stored, dataclasses.replace(other, provenance=HERE)).agree is False


@given(st.floats(0.1, 100), st.floats(0, 0.3), st.floats(0, 0.3))
def test_every_result_agrees_with_itself_and_with_a_wider_one(speedup: float, below: float, above: float) -> None:
    mine = timed(speedup, speedup * (1 - below), speedup * (1 + above))
    wider = timed(speedup, speedup * (1 - 2 * below), speedup * (1 + 2 * above))
    assert compare(mine, mine).agree
    assert compare(mine, wider).agree
    assert compare(wider, mine).agree


# --- the command


def test_all_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str], pool: list[Submission]) -> None:
    path = written(tmp_path, record(), record(WRONG))
    code, data = judged(capsys, path)
    assert code == 0
    assert data["summary"] == {"agree": 2, "disagree": 0, "faults": 0, "not_judged": 0, "share": 1.0}
    assert [submission.source for submission in pool] == [FAST, WRONG]
    first = data["records"][0]
    assert (first["record"], first["task_id"], first["agree"]) == ("records.jsonl:1", "KernelGym/RowSum", True)
    assert first["stored"] == first["again"]
    assert first["stored"]["speedup"] == 2.0
    assert data["records"][1]["stored"]["speedup"] is None


def test_a_disagreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, record(), record(speedup=3.0, speedup_low=2.9, speedup_high=3.1), record(status="wrong"))
    code, data = judged(capsys, path)
    assert code == 1
    assert [row["agree"] for row in data["records"]] == [True, False, False]
    assert data["summary"]["share"] == pytest.approx(1 / 3)
    assert main(["validate", path]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "3 [2.9, 3.1] │ 2 [1.96, 2.04] │ no │ it is slower now" in printed
    assert "wrong then, correct now" in printed
    assert "1 of 3 agree (33%)." in printed


def test_what_is_not_judged_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pool: list[Submission]
) -> None:
    path = written(tmp_path, record(), record(WRONG, task_hash="0" * 64))
    code, data = judged(capsys, path)
    assert (code, len(pool)) == (0, 1)
    assert data["summary"]["not_judged"] == 1
    row = data["records"][1]
    assert (row["judged"], row["agree"], row["again"]) == (False, None, None)
    assert "its task has changed" in row["why"]
    assert main(["validate", path]) == 0
    assert "1 of 1 agree (100%), 1 could not be judged again." in capsys.readouterr().out


def test_a_device_that_this_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    on_gpu = record(device="cuda:0", task_hash=TASK.for_device("cuda").hash)
    code, data = judged(capsys, written(tmp_path, record(), on_gpu))
    assert code == 0
    assert [row["judged"] for row in data["records"]] == [True, False]
    assert "needs an NVIDIA GPU" in data["records"][1]["why"]


def test_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faulty = "# fake: status=fault\nclass ModelNew: ...\n"
    path = written(tmp_path, record(), record(faulty, status="correct"))
    code, data = judged(capsys, path)
    assert code == 3
    assert data["summary"] == {"agree": 1, "disagree": 0, "faults": 1, "not_judged": 0, "share": 1.0}
    assert data["records"][1]["why"] == "asked for by the source"


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "There is no result in"),
        ([record(task_hash="0" * 64)] * 2, "None of the 2 results can be judged again: its task has"),
    ],
)
def test_nothing_to_judge_is_a_mistake(
    records: list[Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", written(tmp_path, *records), "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


def test_a_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = [f"# fake: speedup={number}\nclass ModelNew: ...\n" for number in range(1, 21)]
    changed = record(task_hash="0" * 64)
    path = written(tmp_path, *[record(source) for source in sources], changed)

    def drawn(*options: str) -> list[str]:
        _, data = judged(capsys, path, *options)
        assert data["records"][-1]["record"] == "records.jsonl:21"  # what could not be judged is told all the same
        return [row["record"] for row in data["records"] if row["judged"]]

    few = drawn("--sample", "5", "--seed", "1")
    assert len(few) == 5
    assert few == sorted(few, key=lambda name: int(name.partition(":")[2]))
    assert few == drawn("--sample", "5", "--seed", "1")
    assert few != drawn("--sample", "5", "--seed", "2")
    assert len(drawn("--sample", "50")) == 20


def test_tasks_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], pool: list[Submission]) -> None:
    (tmp_path / "mine.py").write_text(TASK.source, encoding="utf-8")
    mine = load_task(str(tmp_path / "mine.py"))
    path = written(tmp_path, record(task=mine))
    assert main(["validate", path]) == 2
    assert "was not given" in capsys.readouterr().err
    code, _ = judged(capsys, path, "--tasks", str(tmp_path / "mine.py"))
    assert code == 0
    assert pool[0].task == mine


def test_several_files_of_several_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = {key: value for key, value in record().items() if key not in ("source", "library_ops")}
    store = Store(tmp_path / "run.jsonl")
    store.append(TurnRecord("run", "e1", TASK.id, 1, "prompt", f"```python\n{FAST}```", evaluation=evaluation))
    store.append(TurnRecord("run", "e1", TASK.id, 2, "prompt", "<stop>"))
    code, data = judged(capsys, str(store.path), written(tmp_path, record(WRONG), name="one.json"))
    assert code == 0
    assert [row["record"] for row in data["records"]] == ["run.jsonl:1", "one.json"]


def test_progress_is_told_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["validate", written(tmp_path, record(), record(WRONG))])
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in told] == ["1/2", "2/2"]
    assert any("records.jsonl:2: wrong, agrees: yes" in line for line in told)


@pytest.mark.slow
def test_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "copy.py").write_text(
        TASK.for_device("cpu").source.replace("class Model(", "class ModelNew("), encoding="utf-8"
    )
    options = ["--device", "cpu", "--threads", "1"]
    paths = []
    for policy in ("allow", "forbid"):
        main(["eval", TASK.id, str(tmp_path / "copy.py"), *options, "--library-ops", policy, "--json"])
        paths.append(tmp_path / f"{policy}.json")
        paths[-1].write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["validate", *map(str, paths), *options[2:], "--json"]) in (0, 1)
    rows = json.loads(capsys.readouterr().out)["records"]
    assert [row["again"]["status"] for row in rows] == ["correct", "policy"]
    assert rows[1]["agree"]
    # the copy is as fast as the reference, up to what a busy machine does to a few milliseconds of calls
    assert 0.3 < rows[0]["again"]["speedup"] < 3
