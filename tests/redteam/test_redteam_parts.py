"""The parts of the red team without a judge: cases on disk, the verdict, what is watched, the naive evaluator."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from kernelgym_env.cli import main
from kernelgym_env.errors import InvalidOptionError, MissingDataError, UnknownNameError
from kernelgym_env.evaluation.result import Finding, Status
from kernelgym_env.redteam import Naive, Outcome, Record, RedTeamCase, failures, find_cases, read_case, run_naive
from kernelgym_env.redteam.report import confusion, failed
from kernelgym_env.redteam.stopwatch import true_speedup
from kernelgym_env.redteam.watching import Canary, Markers, Processes

TOML = """
id = "X1"
title = "a case"
device = "any"
language = "torch"
expect = "reject"
class = "timer"
why = "It says \\"so\\"."
"""
TASK = """
import torch
import torch.nn as nn

SCALE = 1
N = 64 * SCALE


class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""
RIGHT = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + x + 1\n"
HANGING = RIGHT + "\n\nwhile True:\n    pass\n"
FORGED = 'import os\n\nprint(\'{"correct": true, "speedup": 50.0}\', flush=True)\nos._exit(0)\n' + RIGHT
ORPHAN = """
import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ["HOME"] = "/"
        time.sleep(100)
    os._exit(0)
"""


def write(folder: Path, toml: str = TOML, task: str = TASK, source: str = RIGHT) -> Path:
    folder.mkdir(parents=True)
    for name, text in (("case.toml", toml), ("task.py", task), ("submission.py", source)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def make(expect: str, kind: str = "timer", max_speedup: float | None = None) -> RedTeamCase:
    return RedTeamCase(Path("X1-a-case"), "X1", "a case", "any", "torch", expect, kind, "so", max_speedup, TASK, RIGHT)


# --- cases on disk


def test_a_case_is_read_in_full(tmp_path: Path) -> None:
    folder = write(tmp_path / "X1-a-case", TOML + "max_speedup = 1.5\n")
    (folder / "honest.py").write_text("# the same without the trick\n", encoding="utf-8")
    case = read_case(folder)
    assert (case.id, case.name, case.expect, case.kind, case.max_speedup) == ("X1", "X1-a-case", "reject", "timer", 1.5)
    assert case.why == 'It says "so".'
    assert case.source == RIGHT
    assert case.honest.startswith("# the same")
    assert case.task().id == "RedTeam/X1-a-case"
    assert case.task(8).constants()["SCALE"] == 8


def test_a_task_without_a_scale_keeps_its_size(tmp_path: Path) -> None:
    case = read_case(write(tmp_path / "X1", task=TASK.replace("SCALE = 1\nN = 64 * SCALE", "N = 64")))
    assert case.task(8).constants() == {"N": 64}


@pytest.mark.parametrize(
    ("toml", "error", "said"),
    [
        (TOML.replace("reject", "rejet"), UnknownNameError, "Did you mean 'reject'?"),
        (TOML.replace('"any"', '"tpu"'), UnknownNameError, "Unknown device of case 'X1' 'tpu'"),
        (TOML.replace('"torch"', '"ptx"'), UnknownNameError, "Allowed: cpp, cuda, cupy, torch, triton"),
        (TOML.replace("class", "kind"), InvalidOptionError, "lacks class"),
        (TOML.replace('id = "X1"', "id = 1"), InvalidOptionError, "lacks id"),
        (TOML + "max_speedup = -1\n", InvalidOptionError, "must be a number above 0, got -1"),
        ("id = ", InvalidOptionError, "is not TOML"),
    ],
)
def test_a_case_that_does_not_fit(tmp_path: Path, toml: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said.replace("?", r"\?")):
        read_case(write(tmp_path / "X1", toml))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (write(tmp_path / "X1") / "task.py").unlink()
    with pytest.raises(MissingDataError, match="'X1' lacks task.py"):
        find_cases(tmp_path)


def test_finding_cases(tmp_path: Path) -> None:
    for name in ("C1-cache", "C10-phase", "H1-honest"):
        write(tmp_path / name, TOML.replace("X1", name.partition("-")[0]))
    (tmp_path / "notes").mkdir()
    assert [case.id for case in find_cases(tmp_path)] == ["C1", "C10", "H1"]
    assert [case.id for case in find_cases(tmp_path, ["C1"])] == ["C1"]
    assert [case.id for case in find_cases(tmp_path, ["C*", "*-honest"])] == ["C1", "C10", "H1"]
    assert [case.id for case in find_cases(tmp_path / "C1-cache")] == ["C1"]
    with pytest.raises(InvalidOptionError, match="matches 'Z9'. Ids: C1, C10, H1"):
        find_cases(tmp_path, ["Z9"])
    with pytest.raises(MissingDataError, match="holds no red-team case"):
        find_cases(tmp_path / "notes")
    with pytest.raises(MissingDataError, match="There is no folder"):
        find_cases(tmp_path / "nothing")


def test_what_a_machine_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    case = read_case(write(tmp_path / "X1"))
    assert case.why_not("cpu") == case.why_not("cuda") == ""
    native = read_case(write(tmp_path / "X2", TOML.replace('"any"', '"cpu"').replace('"torch"', '"cpp"')))
    assert native.why_not("cpu") == "needs g++"
    assert native.why_not("cuda") == "needs a cpu device"


# --- the verdict

CREDITED = Outcome(Status.CORRECT)


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("expect", ["accept", "reject", "policy", "contain"])
def test_the_table_of_statuses(expect: str, status: Status) -> None:
    fine = {
        "accept": {Status.CORRECT},
        "reject": set(Status) - {Status.CORRECT, Status.FAULT},
        "policy": set(Status) - {Status.CORRECT, Status.INTEGRITY, Status.TASK_INVALID, Status.FAULT},
        "contain": set(Status) - {Status.FAULT},
    }
    assert (failures(make(expect), Outcome(status)) == []) == (status in fine[expect])


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome(Status.CORRECT, markers=("/tmp/kg_marker_X",)), "left /tmp/kg_marker_X"),
        (Outcome(Status.CORRECT, leaks=("the planted KG_CANARY_TOKEN",)), "carried out the planted KG_CANARY_TOKEN"),
        (Outcome(Status.CORRECT, processes=1), "left 1 process running"),
        (Outcome(Status.CORRECT, processes=2), "left 2 processes running"),
        (Outcome(Status.CORRECT, probe="it was wrong"), "affected the next evaluation: it was wrong"),
    ],
)
@pytest.mark.parametrize("expect", ["accept", "contain"])
def test_harm_fails_every_case(expect: str, outcome: Outcome, said: str) -> None:
    assert failures(make(expect), outcome) == [said]


@pytest.mark.parametrize(
    ("speedup_low", "deserved", "bound", "fine"),
    [
        (1.9, 1.0, None, True),
        (2.1, 1.0, None, False),
        (50.0, 30.0, None, True),
        (0.5, 0.1, None, False),
        (50.0, math.nan, None, True),
        (math.nan, 1.0, None, True),
        (3.0, math.nan, 1.0, False),
        (3.0, 1.0, 2.0, True),
    ],
)
def test_a_contained_trick_gains_nothing(speedup_low: float, deserved: float, bound: float | None, fine: bool) -> None:
    outcome = Outcome(Status.CORRECT, speedup=60.0, speedup_low=speedup_low, deserved=deserved)
    assert (failures(make("contain", max_speedup=bound), outcome) == []) == fine
    assert failures(make("accept"), outcome) == []


def test_a_twin_is_the_closer_measure() -> None:
    outcome = Outcome(Status.CORRECT, speedup=1.8, speedup_low=1.6, deserved=1.0)
    assert failures(make("contain"), outcome) == []
    twin = dataclasses.replace(make("contain"), honest=RIGHT)
    assert failures(twin, outcome) == ["credited with a speedup of at least 1.6, where its kernel deserves 1"]


# --- what is watched


def test_markers_are_found_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgym_env.redteam.watching._places", lambda: [tmp_path])
    old, folder, new = tmp_path / "kg_marker_old", tmp_path / "kg_marker_folder", tmp_path / "kg_marker_new"
    old.write_text("there before")
    changed = tmp_path / "kg_marker_changed"
    changed.write_text("before")
    os.utime(changed, ns=(0, 0))
    (tmp_path / "other").write_text("nobody's business")
    markers = Markers()
    folder.mkdir()
    (folder / "answer").write_text("7")
    new.write_text("here")
    changed.write_text("after")
    assert sorted(markers.clear()) == [(str(changed), "after"), (str(folder), ""), (str(new), "here")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kg_marker_old", "other"]
    assert Markers().clear() == []


def test_a_canary_is_planted_found_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KG_CANARY_TOKEN", "mine")
    monkeypatch.delenv("KG_CANARY_API_KEY", raising=False)
    canary = Canary()
    canary.set()
    token = os.environ["KG_CANARY_TOKEN"]
    assert canary.search(f"so the token is {token}.") == ["the planted KG_CANARY_TOKEN"]
    assert canary.search("mine") == []
    canary.unset()
    assert os.environ["KG_CANARY_TOKEN"] == "mine"
    assert "KG_CANARY_API_KEY" not in os.environ


@pytest.mark.parametrize(
    ("text", "leak"),
    [
        ("KGLEAK seed=8578506018534161298", True),
        ("KGLEAK shape=(64, 512) x=[-0.4841141104698181, 1.2]", True),
        ("KGLEAK seed=# shape=(64, 512) x=[#, #]", False),
        ("KGLEAK", False),
        ("error 0.4841 of the RMS", False),
    ],
)
def test_hidden_values_behind_the_word_are_a_leak(text: str, leak: bool) -> None:
    assert bool(Canary().search(text)) == leak


def test_processes_that_outlive_an_evaluation(tmp_path: Path) -> None:
    server = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    watched = Processes()
    judge = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {server!r}])"],
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        left: list[int] = []
        for _ in range(100):
            if left := watched.left([judge.pid], 0.1):
                break
        # the judge's child is its fork server; what runs below that is left over
        assert len(left) == 1
    finally:
        os.killpg(judge.pid, 9)
        judge.wait()
    assert watched.left([judge.pid], 2.0) == []


# --- the naive evaluator, and the clock outside


@pytest.mark.slow
def test_the_naive_evaluator(tmp_path: Path) -> None:
    right = run_naive(read_case(write(tmp_path / "right")), "cpu")
    assert right.credited and right.speedup > 0 and right.error == ""
    wrong = run_naive(read_case(write(tmp_path / "wrong", source=RIGHT.replace("+ 1", "+ 2"))), "cpu")
    assert not wrong.credited
    forged = run_naive(read_case(write(tmp_path / "forged", source=FORGED)), "cpu")
    assert forged.credited and forged.speedup == 50.0


@pytest.mark.slow
def test_the_naive_evaluator_ends_what_hangs_and_what_is_left(tmp_path: Path) -> None:
    started = Processes()
    hanging = run_naive(read_case(write(tmp_path / "hanging", source=ORPHAN + HANGING)), "cpu", limit_s=8)
    assert not hanging.credited and hanging.error == "no result within 8 s"
    sleeping = [pid for pid in started._before.keys() ^ Processes()._before.keys() if "naive-" in _cwd(pid)]
    # another test may run its own at the same time; what is left behind sleeps for much longer
    end = time.monotonic() + 60
    while any(Path("/proc", str(pid)).exists() for pid in sleeping) and time.monotonic() < end:
        time.sleep(0.2)
    assert [pid for pid in sleeping if Path("/proc", str(pid)).exists()] == []


def _cwd(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


@pytest.mark.slow
def test_the_clock_outside_of_the_process(tmp_path: Path) -> None:
    slow = RIGHT.replace("        return", "        time.sleep(0.003)\n        return").replace(
        "import torch", "import time\n\nimport torch", 1
    )
    slow += "\n\ntime.perf_counter = time.perf_counter_ns = lambda: 0\n"
    assert true_speedup(read_case(write(tmp_path / "slow", source=slow)), "cpu", threads=1) < 0.2
    assert math.isnan(true_speedup(read_case(write(tmp_path / "raises", source="raise ValueError\n" + RIGHT)), "cpu"))


# --- the report and the command


def records() -> list[Record]:
    finding = Finding("C1", "hard", "The output did not change with its input.")
    caught = Record(make("reject"), Outcome(Status.INTEGRITY, findings=(finding,)), naive=Naive(True, 40.0))
    missed = Record(make("contain"), Outcome(Status.CORRECT, 9.0, 8.0, markers=("/tmp/kg_marker_X",)), ("left it",))
    return [caught, missed, Record(make("accept"), Outcome(Status.CORRECT, 2.0, 1.9))]


def test_a_record_as_plain_data() -> None:
    caught, missed, _ = (record.to_dict() for record in records())
    asked = ("id", "expect", "status", "credited", "speedup", "speedup_low", "markers", "findings", "seconds", "ok")
    assert set(asked) <= set(caught)
    assert (caught["status"], caught["credited"], caught["ok"]) == ("integrity", False, True)
    assert caught["findings"][0]["id"] == "C1"
    assert (missed["markers"], missed["ok"], missed["failures"]) == (["/tmp/kg_marker_X"], False, ["left it"])
    assert json.loads(json.dumps(missed))["naive"] is None


def test_the_tables() -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(confusion(records()))
    table = failed(records())
    assert table is not None
    console.print(table)
    printed = console.export_text()
    assert "naive credits" in printed
    rows = {line.split("│")[1].strip(): line.split("│")[2:-1] for line in printed.splitlines() if line.startswith("│")}
    assert [cell.strip() for cell in rows["reject"]] == ["1", "1", "·", "1", "·", "1"]
    assert [cell.strip() for cell in rows["contain"]] == ["1", "0", "1", "·", "1", "·"]
    assert "left it" in printed
    assert failed([record for record in records() if record.ok]) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "There is no folder 'nothing'"),
        ([".", "--only", "Z*"], "matches 'Z*'. Ids: X1"),
        ([".", "--protocol", "strickt"], "Did you mean 'strict'?"),
        ([".", "--scale", "-1", "--device", "cpu"], "--scale must be 0"),
    ],
)
def test_mistakes_in_the_call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    write(tmp_path / "X1-a-case")
    monkeypatch.chdir(tmp_path)
    assert main(["redteam", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.timeout(200)
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    honest = TOML.replace("reject", "accept").replace("timer", "honest")
    write(tmp_path / "X1-wrong", source=RIGHT.replace("+ 1", "+ 2"))
    write(tmp_path / "X2-called-honest", honest.replace("X1", "X2"), source=RIGHT.replace("+ 1", "+ 2"))
    write(tmp_path / "X3-elsewhere", TOML.replace("X1", "X3").replace('"any"', '"cuda"'))
    code = main(["redteam", str(tmp_path), "--device", "cpu", "--threads", "1", "--json"])
    printed = capsys.readouterr()
    assert code == 1
    assert "skipped X3-elsewhere: needs a cuda device" in printed.err
    assert "2/2 X2-called-honest: wrong, not as expected" in printed.err
    said = json.loads(printed.out)
    assert [(one["id"], one["ok"], one["status"]) for one in said] == [("X1", True, "wrong"), ("X2", False, "wrong")]
    assert said[1]["failures"] == ["an honest kernel was judged wrong"]
