"""The command `kernelgym search`."""

import json
import re

import pytest

from kernelgym_env.cli import main


def test_it_searches_and_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    command = [
        "search",
        str(tmp_path / "s"),
        "--policy",
        "sampler",
        "--tasks",
        "KernelGym/RowSum",
        "--pool",
        "simulated",
    ]
    beam = ["--method", "beam", "--width", "4", "--turns", "2", "--keep", "2", "--rounds", "2"]
    assert main([*command, *beam, "--evaluations", "5", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["results"][0]
    assert (first["evaluations"], first["complete"]) == (5, False)
    assert main([*command, *beam, "--json"]) == 0
    (second,) = json.loads(capsys.readouterr().out)["results"]
    assert (second["evaluations"], second["complete"]) == (16, True)
    assert second["curve"][:5] == first["curve"]
    assert main([*command, *beam]) == 0
    assert "KernelGym/RowSum" in capsys.readouterr().out


def test_its_file_is_one_that_other_commands_take(tmp_path, capsys):
    folder = tmp_path / "s"
    command = ["search", str(folder), "--policy", "sampler", "--tasks", "KernelGym/RowSum", "--pool", "simulated"]
    assert main([*command, "--method", "best_of_n", "--n", "8"]) == 0
    for path in (folder, folder / "KernelGym-RowSum", folder / "KernelGym-RowSum" / "turns.jsonl"):
        assert main(["report", str(path), "--json"]) == 0
        assert main(["export", str(path), "turns", str(tmp_path / "rows.jsonl")]) == 0
    other = [part.replace("RowSum", "RowSoftmax") for part in command]
    assert main([*other, "--method", "best_of_n", "--n", "8"]) == 0
    assert main(["report", str(folder), "--json"]) == 0
    assert main(["export", str(folder), "turns", str(tmp_path / "rows.jsonl")]) == 2
    assert "has several tasks; name one" in capsys.readouterr().err


def test_another_policy_is_refused(tmp_path, capsys):
    command = ["search", str(tmp_path), "--tasks", "KernelGym/RowSum", "--pool", "simulated", "--method", "best_of_n"]
    assert main([*command, "--n", "2", "--policy", "sampler"]) == 0
    assert main([*command, "--n", "2", "--policy", "template"]) == 2
    assert "policy 'sampler', not 'template'" in capsys.readouterr().err


def test_nothing_correct_is_a_negative_verdict(tmp_path, capsys):
    (tmp_path / "wrong.py").write_text("# fake: status=wrong\nclass ModelNew: ...\n")
    policy = f"script:{tmp_path / 'wrong.py'}"
    command = ["search", str(tmp_path / "s"), "--policy", policy, "--tasks", "KernelGym/RowCumsum", "--pool", "fake"]
    assert main([*command, "--method", "best_of_n", "--n", "2"]) == 1
    assert "–" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["search", "run"])
def test_a_task_that_the_policy_is_not_for_is_refused_before_it_is_played(command, tmp_path, capsys):
    tasks = ["--tasks", "KernelGym/RowSum", "--tasks", "KernelGym/RowCumsum", "--pool", "fake", "--device", "cpu"]
    assert main([command, str(tmp_path / "s"), "--policy", "template", *tasks]) == 2
    said = capsys.readouterr().err
    assert "cannot act on 1 of the 2 tasks (KernelGym/RowCumsum: it calls 'cumsum', which no template knows)" in said
    assert "tasks that a template computes (columns, elementwise, gae, matmul, rows" in said
    assert not (tmp_path / "s").exists()
    # a backend that has no template for a kind of task which another one has
    tasks = ["--tasks", "KernelGym/ColumnMax", "--pool", "fake", "--device", "cuda:0"]
    assert main([command, str(tmp_path / "s"), "--policy", "template:cupy", *tasks]) == 2
    assert "KernelGym/ColumnMax: there is no template in cupy for its kind" in capsys.readouterr().err


def test_the_table_tells_the_last_evaluation(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    command = ["search", str(tmp_path / "s"), "--policy", "sampler", "--tasks", "KernelGym/RowSum", "--pool", "fake"]
    for count, marks in ((5, (1, 2, 3, 4, 5)), (20, (1, 2, 4, 8, 16, 20))):
        assert main([*command, "--method", "best_of_n", "--n", str(count)]) == 0
        out = capsys.readouterr().out
        assert re.findall(r"after (\d+)", out) == [str(mark) for mark in marks]
        command[1] += "s"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "beam", "--n", "3"], "--n is an option of best_of_n; beam has --width"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--evaluations", "0"], "evaluations must be"),
    ],
)
def test_mistakes(arguments, said, tmp_path, capsys):
    common = ["search", str(tmp_path), "--policy", "sampler", "--tasks", "KernelGym/RowSum", "--pool", "fake"]
    assert main([*common, *arguments]) == 2
    assert said in capsys.readouterr().err
