"""Tasks that are composed from a seed, and what they are held against."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter

import pytest

from kernelgym_env.cli import main
from kernelgym_env.errors import InvalidOptionError, UnknownNameError
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.tasks import Task, load_tasks
from kernelgym_env.tasks.files import read_rows
from kernelgym_env.tasks.kernelbench.ids import parse_id
from kernelgym_env.tasks.kernelbench.rows import sources
from kernelgym_env.tasks.synth import OPERATORS, generate, nearest, sift
from kernelgym_env.tasks.synth.compose import DEFAULT_MIX
from kernelgym_env.tasks.synth.draft import Dim
from kernelgym_env.tasks.synth.generate import NEAR
from kernelgym_env.tasks.synth.sift import reasons
from kernelgym_env.tasks.synth.signature import signature, similarity
from kernelgym_env.tasks.trial import try_task

MODEL = """
import torch
import torch.nn as nn
import torch.nn.functional as F


{before}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x, y=None):
        {forward}
"""


def read(forward: str, init: str = "pass", before: str = "") -> str:
    return " ".join(signature(MODEL.format(forward=forward, init=init, before=before)))


# --- what a reference computes


@pytest.mark.parametrize(
    ("forward", "init", "operators"),
    [
        ("return torch.relu(x) + 1", "pass", "relu add"),
        ("return x.relu_().add_(1)", "pass", "relu add"),
        ("return F.leaky_relu(self.a(x))", "self.a = nn.Linear(4, 4)", "matmul leakyrelu"),
        ("return x @ y + torch.mm(x, y)", "pass", "matmul matmul add"),
        ("return self.b(x)", "self.b = nn.Sequential(nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1))", "conv2d batchnorm"),
        ("return F.silu(x)", "pass", "sigmoid mul"),
        ("return x * torch.sigmoid(x)", "pass", "sigmoid mul"),
        ("return x.view(x.size(0), -1).transpose(0, 1).contiguous()", "pass", ""),
        ("x += self.w.t()\n        return x.sum(dim=1)", "self.w = nn.Parameter(torch.randn(4, 4))", "add sum"),
        ("for _ in range(3):\n            x = torch.tanh(x)\n        return x", "pass", "tanh"),
        ("return self.again(x)\n\n    def again(self, x):\n        return x.exp()", "pass", "exp"),
        ("return other(x) * 2", "pass", "log mul"),
        ("return self.block(x)", "self.block = Block()", "sqrt sin"),
    ],
)  # fmt: skip
def test_operators_are_read_from_the_text(forward: str, init: str, operators: str) -> None:
    before = (
        "def other(x):\n    return torch.log(x)\n\n\n"
        "class Block(nn.Module):\n    def forward(self, x):\n        return x.sqrt().sin()\n\n\n"
    )
    assert read(forward, init, before) == operators


def test_functions_that_call_themselves_come_to_an_end() -> None:
    assert set(read("return again(x)", before="def again(x):\n    return again(x.exp())\n").split()) == {"exp"}
    assert signature("x = 1") == ()
    with pytest.raises(SyntaxError):
        signature("def (")


def test_similarity() -> None:
    assert similarity(["a", "b", "c"], ["a", "b", "c"]) == 1.0 == similarity([], [])
    assert similarity(["a"], []) == 0.0
    assert similarity(["a", "b", "c", "d"], ["a", "c"]) == pytest.approx(2 * 2 / 6)


def test_the_table_is_of_the_problems(shared_data) -> None:
    texts = sources(read_rows(shared_data("kernelbench.jsonl.gz")), "test")
    known = {}
    for task_id, text in texts.items():
        level, _ = parse_id(task_id) or (0, 0)
        found = signature(text)
        if level < 4 and 0 < len(found) <= 24:
            known[task_id] = found
            assert nearest(text)[1] == 1.0, task_id
    from kernelgym_env.tasks.synth.generate import _known

    assert known == dict(_known())


# --- composed tasks


def test_the_same_seed_gives_the_same_tasks() -> None:
    first = generate(30, seed=7)
    assert [task.to_dict() for task in generate(60, seed=7)[:30]] == [task.to_dict() for task in first]
    assert not {task.hash for task in first} & {task.hash for task in generate(30, seed=8)}
    random.seed(0)
    before = random.getstate()
    generate(3)
    assert random.getstate() == before


def test_the_same_seed_gives_the_same_tasks_in_another_process() -> None:
    code = "from kernelgym_env.tasks.synth import generate; print(*(task.hash for task in generate(20, seed=3)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == [task.hash for task in generate(20, seed=3)]


def test_a_thousand_are_new() -> None:
    tasks = generate(1000, seed=1)
    assert len({task.id for task in tasks}) == len({task.tags[2:] for task in tasks}) == 1000
    assert max(nearest(task.source)[1] for task in tasks) <= NEAR
    counts = Counter(len(task.tags) - 2 for task in tasks)
    assert set(counts) <= set(DEFAULT_MIX) and counts[2] > counts[3] > counts[4] > counts[5] > 0
    used = {name for task in tasks for name in task.tags[2:]}
    assert used == set(OPERATORS)
    assert all(task.level == (1 if len(task.tags) == 3 else 2) for task in tasks)


def test_all_of_them_work_at_both_sizes() -> None:
    for task in generate(150, seed=2):
        for kind in ("cpu", "cuda"):
            trial = try_task(task.for_device(kind))
            assert trial.works, (task.id, task.title, kind, trial.error)
            assert trial.elements < (1 << 23 if kind == "cpu" else 1 << 32), (task.id, kind)


def test_operators_and_their_number_can_be_chosen() -> None:
    names = ["snake", "erf", "center", "l2_norm"]
    tasks = generate(5, operators=names, mix={2: 1})
    assert all(len(task.tags) == 4 and set(task.tags[2:]) <= set(names) for task in tasks)
    assert all(len(task.tags) == 3 for task in generate(3, operators=["erf", "snake", "asinh"], mix={1: 1}))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"count": 0}, InvalidOptionError, "count must be an integer of at least 1, got 0"),
        ({"count": True}, InvalidOptionError, "count must be an integer"),
        ({"count": 1, "seed": -1}, InvalidOptionError, "seed must be an integer of at least 0, got -1"),
        ({"count": 1, "operators": ["gelo"]}, UnknownNameError, "Unknown operator 'gelo'. Did you mean 'gelu'"),
        ({"count": 1, "operators": []}, InvalidOptionError, "operators must name at least one"),
        ({"count": 1, "mix": {6: 1}}, InvalidOptionError, "numbers of operators from 1 to 5, got 6"),
        ({"count": 1, "mix": {2: -1}}, InvalidOptionError, "at least 0, got -1 for 2"),
        ({"count": 1, "mix": {2: 10**400}}, InvalidOptionError, "got an integer too large for a float for 2"),
        ({"count": 1, "mix": [2]}, InvalidOptionError, r"A mix maps numbers of operators to weights.*got \[2"),
        ({"count": 1, "operators": "gelu"}, InvalidOptionError, "operators must be a list of names.*got 'gelu'"),
        ({"count": 1, "operators": 5}, InvalidOptionError, "operators must be a list of names"),
        ({"count": 1, "operators": [[]]}, UnknownNameError, "Unknown operator"),
        ({"count": 1, "mix": {2: 0}}, InvalidOptionError, "a weight above 0"),
        ({"count": 9, "operators": ["snake", "erf"]}, InvalidOptionError, "Out of 2 operators came 4 tasks"),
        ({"count": 1, "operators": ["softmax"], "mix": {1: 1}}, InvalidOptionError, "came 0 tasks"),
    ],
)
def test_what_cannot_be_composed_is_refused(options: dict, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        generate(**options)


def test_a_mix_is_its_shares() -> None:
    assert generate(5, mix={1: 1, 2: 2}) == generate(5, mix={2: 2, 1: 1})
    assert generate(5, mix={1: 1e308, 2: 1e308}) == generate(5, mix={1: 1, 2: 1})


def test_extents() -> None:
    rows = Dim("ROWS", {"cpu": 6, "cuda": 12})
    assert (rows.divided(2).text, rows.divided(2).times(3).text) == ("ROWS // 2", "(ROWS // 2) * 3")
    assert rows.divided(2).times(3).sizes == {"cpu": 9, "cuda": 18}
    assert rows.divisible(6) and not rows.divisible(4)


# --- filters


SIFTED = """
import torch
from torch import nn

N = 4096


class Model(nn.Module):
    def forward(self, {names}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def task(forward: str, *, names: str = "x", inputs: str = "torch.randn(64, N)") -> Task:
    return Task("Test/Sifted", SIFTED.format(forward=forward, names=names, inputs=inputs))


@pytest.mark.parametrize(
    ("forward", "options", "said"),
    [
        ("torch.sin(x) * 3", {}, ""),
        ("x + undefined", {}, "fails: the reference fails: NameError"),
        ("torch.dropout(x, 0.5, True)", {}, "the reference differs from itself"),
        ("x * 0 + 1", {}, "one constant is accepted"),
        ("x * 2 + 1e-12 * y", {"names": "x, y", "inputs": "torch.randn(N), torch.randn(N)"}, "matter under strict: 1"),
        ("x * (3 if torch.compiler.is_compiling() else 2)", {}, "torch.compile with aot_eager: its output differs"),
    ],
)  # fmt: skip
def test_filters(forward: str, options: dict, said: str) -> None:
    of = task(forward, **options)
    (found,) = sift([of], "cpu", backend="aot_eager", band_us=(0, 1e9), threads=1)
    assert found.task is of
    assert found.fit == (not said) and said in " ".join(found.reasons), found


def test_the_band_of_times() -> None:
    record = {"protocols": {name: {"state": "ok", "time_us": 50.0} for name in ("strict", "kernelbench")}}
    assert reasons(record, (10, 100)) == ()
    assert reasons(record, (60, 100)) == ("a call takes 50 µs, not 60 to 100",)
    assert len(reasons(record, (10, 40))) == 1
    for band in ((5, 5), (-1, 5), (1,), ("a", 5), None):
        with pytest.raises(InvalidOptionError, match="A band"):
            next(sift([], "cpu", band_us=band or (9, 1)), None)


@pytest.mark.slow
def test_generated_tasks_pass_the_filters() -> None:
    found = list(sift(generate(12, seed=5), "cpu", protocols=["strict", "kernelbench"], threads=1))
    assert sum(one.fit for one in found) >= 10, [one.reasons for one in found]


@pytest.mark.slow
def test_generated_tasks_are_judged(local_pool) -> None:
    for of in (made.for_device("cpu") for made in generate(4, seed=11)):
        source = of.source.replace("class Model(", "class ModelNew(")
        for policy, status in (("allow", "correct"), ("forbid", "policy")):
            evaluation = local_pool.submit(Submission(of, source, device="cpu", library_ops=policy)).result()
            assert evaluation.status == status, (of.title, evaluation.feedback)


# --- the command


def test_the_command_writes_tasks(tmp_path, capsys) -> None:
    out = tmp_path / "made.jsonl"
    assert main(["synth", str(out), "--count", "4", "--seed", "9"]) == 0
    assert "4 tasks are in" in capsys.readouterr().out
    assert load_tasks(out) == generate(4, seed=9)
    options = ["--count", "2", "--operator", "erf", "--operator", "snake", "--json"]
    assert main(["synth", str(out), *options]) == 2
    assert "made.jsonl' exists. Name another file, or write it anew with --force." in capsys.readouterr().err
    assert load_tasks(out) == generate(4, seed=9)
    assert main(["synth", str(out), *options, "--force"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == [one.id for one in load_tasks(out)]


@pytest.mark.slow
def test_the_command_sifts(tmp_path, capsys) -> None:
    out = tmp_path / "made.jsonl"
    options = ["--count", "2", "--sift", "--device", "cpu", "--backend", "none", "--threads", "1", "--json"]
    assert main(["synth", str(out), *options, "--band-us", "0", "1e9"]) == 0
    assert json.loads(capsys.readouterr().out)["refused"] == {}
    assert len(load_tasks(out)) == 2
    assert main(["synth", str(out), *options, "--force", "--band-us", "0", "1"]) == 1
    assert "a call takes" in str(json.loads(capsys.readouterr().out)["refused"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["made.txt"], "must end in .jsonl"),
        (["none/made.jsonl"], "There is no folder"),
        (["made.jsonl", "--operator", "none"], "Unknown operator 'none'"),
        (["made.jsonl", "--sift", "--device", "cpu", "--band-us", "5", "1"], "A band goes from"),
    ],
)
def test_the_command_refuses(words: list[str], said: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["synth", *words]) == 2
    assert said in capsys.readouterr().err
