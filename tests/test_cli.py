"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelgym_env import doctor
from kernelgym_env.cli import main
from kernelgym_env.cli.evaluate import view
from kernelgym_env.cli.output import console, print_json
from kernelgym_env.doctor import Check
from kernelgym_env.evaluation.protocols import protocol_names
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.pools.fake import FakePool
from kernelgym_env.prompts import task_prompt
from kernelgym_env.prompts.task import STYLES
from kernelgym_env.tasks import load_task

ROOT = Path(__file__).resolve().parent.parent
TASK = """
\"\"\"Doubles and adds one.\"\"\"
import torch
from torch import nn

N = 4096


class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""
RIGHT = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + x + 1\n"
WRONG = RIGHT.replace("+ 1", "+ 2")
SLEEPY = "import time\ntime.sleep(30)\n" + RIGHT
COMMANDS = (
    "eval",
    "tasks",
    "show",
    "audit",
    "roofline",
    "synth",
    "run",
    "report",
    "compare",
    "export",
    "redteam",
    "validate",
    "doctor",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a task and submissions; the working directory. No KernelBench."""
    (tmp_path / "scale.py").write_text(TASK)
    (tmp_path / "right.md").write_text(f"Faster:\n```python\n{RIGHT}```\n")
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELBENCH_DIR", raising=False)
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


@pytest.fixture
def fake_pool(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let `eval` judge with the fake pool; the list holds the submissions."""
    submissions: list[Any] = []

    class Pool(FakePool):
        def __init__(self, threads: int, **sandbox: Any) -> None:
            super().__init__()
            made.append((threads, sandbox))

        def submit(self, submission: Any, priority: int = 0) -> Any:
            submissions.append(submission)
            return super().submit(submission, priority)

    monkeypatch.setattr("kernelgym_env.pools.local.LocalPool", Pool)
    return submissions


made: list[tuple[int, dict[str, Any]]] = []
"""Threads and sandbox of each pool that `fake_pool` stood in for."""


def fake(folder: Path, directive: str) -> str:
    path = folder / "fake.py"
    path.write_text(f"# fake: {directive}\nclass ModelNew: ...\n")
    return str(path)


# --- the whole


def test_as_a_program(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "kernelgym_env.cli"]
    done = subprocess.run([*command, "--version"], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kernelgym_env ")
    done = subprocess.run([*command, "evla"], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'eval'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_stops_reading_is_no_error(folder: Path) -> None:
    code = "import sys; from kernelgym_env.cli import main; sys.exit(main(['tasks']))"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(command in printed for command in COMMANDS)
    assert "exit codes" in printed


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["eval", "redteam"])
def test_protocols_are_listed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in protocol_names())
    assert main(["eval", "scale.py", "wrong.py", "--protocol", "kernelbenhc"]) == 2
    said = capsys.readouterr().err
    assert "Did you mean 'kernelbench'?" in said
    assert all(name in said for name in protocol_names())


def test_nothing_to_do_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert all(f"    {command} " in printed.err for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["eval", "KernelGym/RowSotmax", "wrong.py"], "Did you mean 'KernelGym/RowSoftmax'?"),
        (["eval", "./no.py", "wrong.py"], "There is no file or folder './no.py'"),
        (["eval", "scale.py", "no.py"], "'no.py' cannot be read: No such file or directory"),
        (["eval", "scale.py", "."], "'.' cannot be read: Is a directory"),
        (["eval", "scale.py", "binary"], "'binary' is not UTF-8 text"),
        (["eval", "scale.py", "wrong.py", "--device", "gpu"], "Unknown device 'gpu'"),
        (["eval", "scale.py", "wrong.py", "--backend", "tritn"], "Did you mean 'triton'?"),
        (["eval", "scale.py", "wrong.py", "--protocol", "stirct"], "Did you mean 'strict'?"),
        (["eval", "scale.py", "wrong.py", "--library-ops", "forbd"], "Did you mean 'forbid'?"),
        (["eval", "scale.py", "wrong.py", "--run-timeout", "0"], "run_s must be a number of seconds above 0"),
        (["eval", "scale.py", "wrong.py", "--run-timeout", "inf"], "run_s must be a number of seconds above 0"),
        (["eval", "scale.py", "wrong.py", "--run-timeout", "soon"], "invalid float value: 'soon'"),
        (["eval", "scale.py", "wrong.py", "--threads", "-1"], "threads must be 0"),
        (["eval", "wrong.py", "wrong.py"], "lacks"),
        (["tasks", "--suite", "coer"], "Did you mean 'core'?"),
        (["tasks", "--suite", "nope"], "Or give a file or folder with tasks"),
        (["tasks", "--suite", "./no"], "There is no file or folder './no'"),
        (["tasks", "--level", "9"], "Unknown level '9'. Allowed: 1, 2, 3, 4."),
        (["tasks", "--tag", "redction"], "Did you mean 'reduction'?"),
        (
            ["show", "KernelGym/RowSotmax"],
            "Did you mean 'KernelGym/RowSoftmax'? `kernelgym tasks --suite core` lists the ids.\n",
        ),
        (["validate", "no.json"], "'no.json' cannot be read: No such file or directory"),
        (["validate", "binary"], "'binary' is no UTF-8 text"),
        (["validate", "wrong.py"], "'wrong.py' is no JSON"),
        (["validate", "wrong.py", "--sample", "0"], "--sample must be at least 1, got 0"),
        (
            ["show", "KernelBench/L1-1"],
            "Unknown task id 'KernelBench/L1-1'. Did you mean 'KernelBench/L1-001'? `kernelgym tasks --suite",
        ),
        (["show", "KernelBench/L1-1-v0"], "Did you mean 'KernelBench/L1-001'?"),
        (["show", "nothing-like-it"], "'nothing-like-it'. `kernelgym tasks` lists the ids.\n"),
        (["show", "KernelBench/L1-019"], "Set KERNELBENCH_DIR"),
        (["show", "scale.py", "--device", "tpu"], "Unknown device 'tpu'"),
    ],
)
def test_a_mistake_in_the_call(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    assert main([*arguments, "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert "Traceback" not in printed.err


def test_a_bug_is_a_fault(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "run", lambda: 1 / 0)
    assert main(["doctor", "--json"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "ZeroDivisionError" in printed.err


def test_an_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "run", interrupted)
    assert main(["doctor"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_json_has_no_number_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [float("nan"), float("inf"), 1.5], 2: ("é", None, True)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, None, 1.5], "2": ["é", None, True]}


# --- eval


def test_eval_of_a_right_submission(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--device", "cpu", "--threads", "1", "--library-ops", "allow"]
    assert main(["eval", "scale.py", "right.md", *options, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["task_id"] == "File/scale"
    assert (result["status"], result["credited"], result["device"]) == ("correct", True, "cpu")
    assert 0 < result["speedup_low"] <= result["speedup"] <= result["speedup_high"]
    assert result["times"]["candidate"]["n"] > 0
    assert result["coverage"] is None
    assert (result["source"], result["library_ops"]) == (RIGHT, "allow")


@pytest.mark.parametrize(("interval", "hint"), [((0.9, 1.2), False), ((0.8, 1.4), True), ((1.0, 9.0), True)])
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_eval_says_what_to_do_about_a_wide_interval(
    device: str, interval: tuple[float, float], hint: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    low, high = interval
    evaluation = Evaluation("a/b", Status.CORRECT, device=device, speedup=1.0, speedup_low=low, speedup_high=high)
    console().print(view(evaluation))
    printed = " ".join(capsys.readouterr().out.split())
    assert ("The interval is wide" in printed) == hint
    assert ("--threads 1" in printed) == (hint and device == "cpu")


def test_eval_of_a_wrong_submission(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "scale.py", "wrong.py", "--device", "cpu", "--threads", "1"]) == 1
    printed = capsys.readouterr().out
    assert "wrong: The output is wrong." in printed
    assert "error ratio" in printed
    assert "speedup" not in printed


def test_eval_of_one_that_leaves_the_work_to_torch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "scale.py", "right.md", "--device", "cpu", "--threads", "1"]) == 1
    assert "policy: The output is right" in capsys.readouterr().out


def test_eval_with_a_timeout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", "scale.py", "sleepy.py", "--device", "cpu", "--import-timeout", "0.5", "--json"]
    assert main(arguments) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["status"] == "timeout"
    assert result["provenance"]["protocol"]["deadlines"]["import_s"] == 0.5


def test_eval_prints_what_was_measured(folder: Path, fake_pool: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "scale.py", fake(folder, "speedup=2")]) == 0
    printed = capsys.readouterr().out
    assert "2x over eager PyTorch (95% interval 1.96 to 2.04)" in printed
    assert "candidate │ 50 µs │ 49 µs – 51 µs │ 100 │ fake" in " ".join(printed.split())
    assert "seconds by stage" in printed


@pytest.mark.parametrize(
    ("directive", "code"),
    [("status=correct", 0), ("status=compile_error", 1), ("status=task_invalid", 1), ("status=fault", 3)],
)
def test_eval_exit_codes(
    directive: str, code: int, folder: Path, fake_pool: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "scale.py", fake(folder, directive)]) == code
    assert main(["eval", "scale.py", fake(folder, directive), "--json"]) == code
    assert directive.partition("=")[2] in capsys.readouterr().out


def test_eval_shows_markup_as_it_is(folder: Path, fake_pool: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "odd.py").write_text("class ModelNew[red]: :smile: [/red]\n")
    assert main(["eval", "scale.py", "odd.py"]) == 1
    assert "class ModelNew[red]: :smile: [/red]" in capsys.readouterr().out


def test_eval_passes_its_options_on(
    folder: Path, fake_pool: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"```\n{RIGHT}```".encode())))
    options = ["--backend", "cpp", "--library-ops", "allow", "--device", "cpu"]
    timeouts = ["--import-timeout=1", "--build-timeout=2", "--first-call-timeout=3", "--run-timeout=4.5"]
    main(["eval", "KernelGym/RowSum-v0", "-", *options, *timeouts, "--baseline=compile", "--baseline=graph", "--json"])
    json.loads(capsys.readouterr().out)
    (submission,) = fake_pool
    assert submission.source == RIGHT
    assert submission.task.id == "KernelGym/RowSum"
    assert (submission.backend, submission.library_ops, submission.device) == ("cpp", "allow", "cpu")
    deadlines = submission.protocol.deadlines
    assert (deadlines.import_s, deadlines.build_s, deadlines.first_call_s, deadlines.run_s) == (1, 2, 3, 4.5)
    assert submission.protocol.baselines == ("compile", "graph")


def test_eval_passes_the_sandbox_on(folder: Path, fake_pool: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    made.clear()
    main(["eval", "scale.py", fake(folder, "speedup=2")])
    options = ["--sandbox", "require", "--memory-gib", "2.5", "--cores", "1", "--threads", "3"]
    main(["eval", "scale.py", fake(folder, "speedup=2"), *options])
    assert made == [
        (0, {"sandbox": "best_effort", "memory_gib": None, "cores": None}),
        (3, {"sandbox": "require", "memory_gib": 2.5, "cores": 1}),
    ]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--sandbox", "none", "Allowed: best_effort, require"),
        ("--memory-gib", "0.1", "at least 1"),
        ("--cores", "0", "from 1 to"),
    ],
)
def test_eval_refuses_a_sandbox_that_cannot_be(
    option: str, value: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        assert main(["eval", "scale.py", "right.md", "--device", "cpu", option, value]) == 2
    assert said in capsys.readouterr().err


# --- tasks and show


def test_tasks_of_a_suite(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--suite", "core", "--level", "1", "--tag", "reduction", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["notes"] == []
    assert "KernelGym/RowSum" in {task["id"] for task in listed["tasks"]}
    for task in listed["tasks"]:
        assert task["level"] == 1
        assert "reduction" in task["tags"]
        assert task["available"]
        assert task["env_id"] == f"{task['id']}-v0"
    assert main(["tasks", "--suite", "core"]) == 0
    printed = capsys.readouterr().out
    assert "KernelGym/RowSum" in printed
    assert "Row sums" in printed
    assert "KernelBench" not in printed


def test_tasks_without_their_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--suite", "KernelBench/L1", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed["tasks"]) == 100
    assert not any(task["available"] for task in listed["tasks"])
    assert "KERNELBENCH_DIR" in listed["notes"][0]
    assert main(["tasks", "--suite", "KernelBench/L1", "--tag", "flaw-identity"]) == 0
    printed = capsys.readouterr().out
    assert "KernelBench/L1-019" in printed
    assert "no data on this machine" in printed
    assert "KERNELBENCH_DIR" in printed
    assert "L1-001" not in printed, "an id that nobody asked for"


def test_all_tasks_without_kernelbench(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "KernelGym/RowSum" in printed
    assert "KernelBench/L" not in printed
    assert "270 of KernelBench's problems have no data" in printed
    assert "`kernelgym tasks --suite kernelbench` lists their ids. KernelBench's problems are not part" in printed
    assert main(["tasks", "--tag", "flaw-identity"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "No task" not in printed
    assert "`kernelgym tasks --suite kernelbench --tag flaw-identity` lists their ids" in printed
    assert main(["tasks", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {task["id"].partition("/")[0] for task in listed["tasks"]} == {"KernelGym", "KernelRL", "KernelBench"}


def test_tasks_with_a_part_of_the_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"level": 1, "problem_id": 2, "name": "2_Scale", "code": TASK}
    (folder / "part.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.setenv("KERNELBENCH_DIR", str(folder / "part.jsonl"))
    assert main(["tasks"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "KernelBench/L1-002" in printed
    assert "KernelBench/L1-001" not in printed
    assert "269 of KernelBench's problems have no data" in printed
    assert "What has no data is not among the problems at KERNELBENCH_DIR=" in printed


def test_tags_are_the_same_with_the_data(
    folder: Path, shared_data: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["tasks", "--suite", "kernelbench", "--json"])
    without = json.loads(capsys.readouterr().out)["tasks"]
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    main(["tasks", "--suite", "kernelbench", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert listed["notes"] == []
    for task, bare in zip(listed["tasks"], without, strict=True):
        assert task["title"]
        assert {**task, "title": "", "description": "", "available": False} == bare


def test_tasks_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--suite", ".", "--json"]) == 0
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert (task["id"], task["description"]) == ("File/scale", "Doubles and adds one.")


def test_tasks_without_a_match(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--suite", "core", "--tag", "reduction", "--tag", "attention"]) == 0
    assert capsys.readouterr().out == "No task has all of this.\n"


def test_roofline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "core", "--id", "KernelGym/RowSum", "--on", "NVIDIA H200", "--on", "Tesla T4"]) == 0
    printed = capsys.readouterr().out
    assert "KernelGym/RowSum" in printed and "Tesla T4" in printed and "memory" in printed
    assert main(["roofline", "KernelGym/Matmul", "--protocol", "makora", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["protocol"] == "makora"
    assert data["tasks"][0]["bounds"] == {"NVIDIA H200": "compute"}
    (folder / "broken.py").write_text(TASK.replace("return x", "return y"))
    assert main(["roofline", "broken.py"]) == 1
    assert "cannot be counted" in " ".join(capsys.readouterr().out.split())
    (folder / "broken.py").write_text(TASK.replace("return x ", "raise SystemExit(0) #"))
    assert main(["roofline", "broken.py"]) == 1
    assert "raises SystemExit: 0" in " ".join(capsys.readouterr().out.split())


def test_roofline_refuses_a_device_without_a_data_sheet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "core", "--on", "H200"]) == 2
    assert "Unknown device with a data sheet: 'H200'. Allowed: NVIDIA A10," in capsys.readouterr().err


def test_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "scale.py", "--device", "cuda"]) == 0
    printed = capsys.readouterr().out
    assert "sizes on cuda  N = 4096" in printed
    assert TASK.strip() in printed
    assert main(["show", "scale.py", "--device", "cpu", "--prompt"]) == 0
    assert capsys.readouterr().out == task_prompt(load_task("scale.py").for_device("cpu"), kind="cpu").rstrip() + "\n"


def test_show_prints_prompts_of_every_style_and_language(capsys: pytest.CaptureFixture[str]) -> None:
    task = load_task("KernelGym/RowSum").for_device("cuda")
    for style in STYLES:
        call = ["show", "KernelGym/RowSum", "--device", "cuda", "--prompt", "--style", style, "--backend", "cupy"]
        assert main(call) == 0
        assert capsys.readouterr().out == task_prompt(task, kind="cuda", style=style, backend="cupy") + "\n"
    assert main(["show", "KernelGym/RowSum", "--device", "cpu", "--prompt", "--backend", "cupy"]) == 2
    assert "Backend 'cupy' does not run on device 'cpu'" in capsys.readouterr().err
    assert main(["show", "KernelGym/RowSum", "--prompt", "--style", "oneshot"]) == 2
    assert "one_shot" in capsys.readouterr().err


def test_show_json_has_the_sizes_of_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {}
    for device in ("cpu", "cuda"):
        assert main(["show", "KernelGym/RowSum", "--device", device, "--prompt", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        sizes[device] = shown["sizes"]
        assert shown["device"] == device
        assert shown["source"] in shown["prompt"] + "\n"
        assert f"{next(iter(shown['sizes'].values()))}" in shown["source"]
    assert sizes["cpu"] != sizes["cuda"]


def test_show_does_not_break_long_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "NOTE = '" + "x" * 300 + "'"
    (folder / "scale.py").write_text(f"{TASK}\n{line}\n")
    assert main(["show", "scale.py"]) == 0
    assert line in capsys.readouterr().out


# --- doctor


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("missing", 1)])
def test_doctor_exit_codes(
    state: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [
        Check("torch", "torch", state, "2.9", "pip install torch", True),
        Check("GPU", "driver", "missing", "none"),
    ]
    monkeypatch.setattr(doctor, "run", lambda: list(checks))
    assert main(["doctor", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["works"] == (code == 0)
    assert [check["name"] for check in report["checks"]] == ["torch", "driver"]
    assert main(["doctor"]) == code
    printed = capsys.readouterr().out
    assert "pip install torch" in printed
    assert ("cannot be evaluated here: see torch." in printed) == (code == 1)


def test_doctor_breaks_no_word_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = "Linux-6.12.1-generic-x86_64-with-glibc2.36"
    advice = "Set KERNELBENCH_DIR to a checkout of KernelBench (github.com/ScalingIntelligence/KernelBench), or not."
    checks = [
        Check("system", "platform", "ok", said),
        Check("isolation", "cgroup v2, delegated", "missing", "", advice),
    ]
    monkeypatch.setattr(doctor, "run", lambda: checks)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert set(f"{said} {advice}".split()) <= set(printed.split())
    assert "`kernelgym doctor --evaluate`" in printed


def test_doctor_evaluates_only_where_it_can(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = []

    def evaluate(device: str) -> Check:
        tried.append(device)
        return Check("evaluation", f"on {device}", "missing", "fault", "", True)

    monkeypatch.setattr(doctor, "evaluate", evaluate)
    monkeypatch.setattr("kernelgym_env.devices.cuda_device_names", list)
    monkeypatch.setattr(doctor, "run", lambda: [Check("torch", "torch", "missing", "", "", True)])
    assert main(["doctor", "--evaluate"]) == 1
    assert tried == []
    monkeypatch.setattr(doctor, "run", lambda: [Check("torch", "torch", "ok", "", "", True)])
    assert main(["doctor", "--evaluate"]) == 1
    assert tried == ["cpu"]
    assert "see on cpu" in capsys.readouterr().out
