"""Where KernelBench's problems are read from, what is known of them, and named sets of them."""

from __future__ import annotations

import builtins
import dataclasses
import gzip
import json
import re
import sys

import gymnasium as gym
import pytest
from hub import parquet, problem

import kernelgym_env
from kernelgym_env.audit import AuditFile, Auditor
from kernelgym_env.cli import main
from kernelgym_env.errors import InvalidOptionError, MissingDataError, UnknownNameError
from kernelgym_env.tasks import load_task, load_tasks, task_ids
from kernelgym_env.tasks.kernelbench import (
    CATEGORIES,
    IDS,
    PARTS,
    REPRESENTATIVE,
    flaw_tags,
    identify,
    kevin_split,
    make_id,
    parse_id,
    problem_names,
    versions,
)
from kernelgym_env.tasks.kernelbench.categories import category
from kernelgym_env.tasks.kernelbench.requirements import check_requirements, missing
from kernelgym_env.tasks.selection import select
from kernelgym_env.tasks.splits import split
from kernelgym_env.tasks.trial import try_task

PROBLEMS = [problem(1, 1), problem(1, 2), problem(2, 30)]


def as_checkout(folder):
    for row in PROBLEMS:
        path = folder / "KernelBench" / f"level{row['level']}" / f"{row['name']}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(row["code"])
    return folder


def as_jsonl(folder):
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS))
    return folder / "x.jsonl"


def as_parquet(folder):
    pytest.importorskip("pyarrow")
    (folder / "x.parquet").write_bytes(parquet(PROBLEMS))
    return folder / "x.parquet"


def as_data_set(folder):
    pytest.importorskip("pyarrow")
    (folder / "data").mkdir()
    for level in (1, 2):
        rows = [row for row in PROBLEMS if row["level"] == level]
        (folder / "data" / f"level_{level}-00000-of-00001.parquet").write_bytes(parquet(rows))
    return folder


@pytest.mark.parametrize("lay_out", [as_checkout, as_jsonl, as_parquet, as_data_set])
def test_the_same_tasks_from_every_kind_of_data(tmp_path, monkeypatch, lay_out):
    monkeypatch.setenv("KERNELBENCH_DIR", str(lay_out(tmp_path)))
    for row in PROBLEMS:
        task = load_task(make_id(row["level"], row["problem_id"]))
        assert (task.source, task.level) == (row["code"], row["level"])
        assert task.title == f"Add {row['problem_id']}"
    assert problem_names() == {make_id(row["level"], row["problem_id"]): row["name"] for row in PROBLEMS}
    with pytest.raises(MissingDataError, match="L1-003 is not among the problems at KERNELBENCH_DIR="):
        load_task("KernelBench/L1-003")


def test_a_parquet_file_is_a_file_of_tasks(tmp_path):
    path = as_parquet(tmp_path)
    assert [task.id for task in load_tasks(path)] == ["KernelBench/L1-001", "KernelBench/L1-002", "KernelBench/L2-030"]
    assert load_task(f"{path}#KernelBench/L2-030").source == PROBLEMS[2]["code"]
    path.write_bytes(b"PAR1 is how it should begin, and end")
    with pytest.raises(InvalidOptionError, match=r"x\.parquet cannot be read as Parquet"):
        load_tasks(path)
    with pytest.raises(MissingDataError, match="no file or folder"):
        load_tasks("gone.parquet")


def test_parquet_without_the_library_that_reads_it(tmp_path, monkeypatch):
    path = as_parquet(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.split(".")[0] == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDataError, match="pyarrow is not installed. Run: pip install pyarrow"):
        load_tasks(path)


def test_rows_of_two_files_for_one_problem(tmp_path, monkeypatch):
    for name in ("level_1-00000-of-00002.jsonl", "level_1-00001-of-00002.jsonl"):
        (tmp_path / name).write_text(json.dumps(PROBLEMS[0]))
    monkeypatch.setenv("KERNELBENCH_DIR", str(tmp_path))
    with pytest.raises(InvalidOptionError, match=r"of-00002.jsonl and .* has more than one row for KernelBench/L1-001"):
        load_task("KernelBench/L1-001")


# what is known without the data


def test_every_problem_has_one_category():
    listed = [(level, number) for level, number in map(parse_id, IDS) if category(level, number)]
    assert len(listed) == 270
    assert sum(len(numbers) for levels in CATEGORIES.values() for numbers in levels.values()) > 20
    assert category(1, 88) == "activation" and category(4, 21) == category(1, 0) == ""


def test_categories_agree_with_the_names(shared_data, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    for task_id, name in problem_names().items():
        level, number = parse_id(task_id)
        words = name.lower()
        if level == 1 and "conv" in words:
            kind = "transposed-convolution" if "transposed" in words else "convolution"
            assert category(level, number) == kind, name
        if level == 1 and "matmul" in words:
            assert category(level, number) == "matmul"
        if level == 2:
            first = words.split("_")[1]
            kind = "transposed-convolution" if "transpose" in first else "convolution"
            assert category(level, number) == ("matmul" if first in ("gemm", "matmul", "bmm") else kind), name
        if level == 3 and ("lstm" in words or "gru" in words):
            assert category(level, number) == "recurrent"


def test_tasks_carry_their_category(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_DIR", str(as_jsonl(tmp_path)))
    assert load_task("KernelBench/L2-030").tags == ("kernelbench", "level2", "matmul")


def test_the_named_sets():
    assert list(PARTS["KernelBench/250"]) == [task_id for task_id in IDS if "/L4" not in task_id]
    assert task_ids("KernelBench/250") == list(PARTS["KernelBench/250"])
    assert len(PARTS["KernelBench/Representative"]) == 35 == sum(map(len, REPRESENTATIVE.values()))
    assert sum(bool(flaw_tags(*parse_id(task_id))) for task_id in PARTS["KernelBench/Representative"]) == 5
    train, held_out = PARTS["KernelBench/Kevin-train"], PARTS["KernelBench/Kevin-held-out"]
    assert (len(train), len(held_out)) == (180, 20)
    assert set(train) | set(held_out) == set(PARTS["KernelBench/L1"] + PARTS["KernelBench/L2"])


# divisions


def test_a_split_keeps_order_and_levels():
    for seed in range(5):
        halves = kevin_split(seed)
        assert not set(halves.train) & set(halves.held_out)
        assert list(halves.train) == sorted(halves.train) and list(halves.held_out) == sorted(halves.held_out)
        assert [sum(f"/L{level}" in task_id for task_id in halves.held_out) for level in (1, 2)] == [10, 10]
        assert kevin_split(seed) == halves
    assert len({kevin_split(seed).held_out for seed in range(5)}) == 5


def test_a_split_is_the_same_for_another_order_and_moves_little_for_another_task():
    ids = PARTS["KernelBench/L1"]
    halves = split(ids, 20)
    assert set(split(ids[::-1], 20).held_out) == set(halves.held_out)
    assert len(set(split((*ids, "A/more"), 20).held_out) & set(halves.held_out)) >= 19


def test_a_split_of_tasks_is_that_of_their_ids():
    tasks = load_tasks("core")
    ids = [task.id for task in tasks]
    halves = split(ids, 10, seed=1)
    assert split(tasks, 10, seed=1) == split([*tasks[:20], *ids[20:]], 10, seed=1) == halves
    assert halves.held_out[:2] == ("KernelGym/RowSum", "KernelGym/ColumnSum")
    assert split(tasks, 10, seed=1, group=lambda task_id: task_id[10]) == split(
        ids, 10, seed=1, group=lambda task_id: task_id[10]
    )
    with pytest.raises(InvalidOptionError, match="'KernelGym/RowSum' comes more often"):
        split([load_task("KernelGym/RowSum"), "KernelGym/RowSum"], 1)


def test_shares_of_groups_that_do_not_divide():
    ids = [f"{group}/{number}" for group, size in (("A", 5), ("B", 3), ("C", 2)) for number in range(size)]
    held_out = split(ids, 4, group=lambda task_id: task_id[0]).held_out
    assert [sum(task_id[0] == group for task_id in held_out) for group in "ABC"] == [2, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((["A/a"], 1), "from 1 to 0 for 1 tasks, got 1"),
        ((["A/a", "A/b"], 0), "from 1 to 1 for 2 tasks, got 0"),
        ((["A/a", "A/b"], 1.0), "got 1.0"),
        ((["A/a", "A/b"], True), "got True"),
        ((["A/a", "A/a", "A/b"], 1), "'A/a' comes more often"),
        ((["A/a", 7, "A/b"], 1), "and 7 is neither"),
        (("core", 1), "a list of task ids or tasks, got 'core'"),
    ],
)
def test_splits_that_cannot_be(arguments, complaint):
    with pytest.raises(InvalidOptionError, match=complaint):
        split(*arguments)
    with pytest.raises(InvalidOptionError, match="seed of a split must be an integer, got 'a'"):
        split(["A/a", "A/b"], 1, seed="a")


# choosing


def test_tasks_are_chosen_by_what_they_are():
    tasks = load_tasks("core")
    assert [task.id for task in select(tasks, ids=["KernelGym/Row*-v0", "KernelGym/Matmul"])] == [
        task.id for task in tasks if task.id == "KernelGym/Matmul" or task.id.startswith("KernelGym/Row")
    ]
    assert {task.level for task in select(tasks, levels=[2, 3])} == {2, 3}
    chosen = select(tasks, levels=[1], tags=["reduction", "softmax"])
    assert [task.id for task in chosen] == ["KernelGym/RowSoftmax", "KernelGym/RowLogSoftmax"]
    assert select(tasks) == tasks and select(tasks, levels=[3], tags=["scan"]) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"ids": ["KernelGym/RowSoftmx"]}, "Did you mean 'KernelGym/RowSoftmax'"),
        ({"levels": [7]}, "Unknown level '7'"),
        ({"tags": ["sotfmax"]}, "Did you mean 'softmax'"),
    ],
)
def test_choices_that_nothing_fits(options, complaint):
    with pytest.raises(UnknownNameError, match=complaint):
        select(load_tasks("core"), **options)
    with pytest.raises(InvalidOptionError, match=r"tags must be a list of texts, got 'scan'; write \['scan'\]"):
        select(load_tasks("core"), tags="scan")


# versions


def test_published_texts_are_told_apart(shared_data):
    newest = {task.id: task.source for task in load_tasks(shared_data("kernelbench.jsonl.gz"))}
    with gzip.open(shared_data("cuda_l1_a100.jsonl.gz"), "rt") as file:
        rows = [json.loads(line) for line in file]
    oldest = {make_id(int(row["level_id"]), int(row["task_id"])): row["ref_code"] for row in rows}
    assert (str(identify(newest)), str(identify(oldest))) == ("v0.2", "v0")
    # what v0.1 changed in this problem; v0.2 changed something else in it
    between = oldest["KernelBench/L1-012"].replace("randn(", "rand(")
    assert str(identify({"KernelBench/L1-012": between})) == "v0.1"
    assert str(identify({"KernelBench/L1-019": newest["KernelBench/L1-019"]})) == "v0.1 or v0.2"
    assert str(identify({"KernelBench/L4-001": newest["KernelBench/L4-001"]})) == "v0.2"
    changed = identify({**newest, "KernelBench/L2-007": "class Model: ..."})
    assert (changed.version, changed.exact, changed.differing) == ("v0.2", False, ("KernelBench/L2-007",))
    assert str(changed) == "v0.2 but for 1 of them"
    assert versions.content_hash(newest) != versions.content_hash({**newest, "KernelBench/L2-007": ""})
    assert versions.content_hash(newest) == versions.content_hash(dict(reversed(newest.items())))


def test_a_version_is_told_of_tasks_too(shared_data):
    tasks = load_tasks(shared_data("kernelbench.jsonl.gz"))
    texts = {task.id: task.source for task in tasks}
    assert identify(tasks) == identify(iter(tasks)) == identify(texts) == versions.Match("v0.2", True)
    assert versions.content_hash(tasks) == versions.content_hash(texts)
    for wrong in (list(texts), "KernelBench/L1", {"KernelBench/L1-001": tasks[0]}, None):
        with pytest.raises(InvalidOptionError, match="a list of tasks, or as texts by task id, got"):
            identify(wrong)
        with pytest.raises(InvalidOptionError, match="a list of tasks, or as texts by task id, got"):
            versions.content_hash(wrong)


# what problems need beside their source


def test_a_library_that_is_not_installed(tmp_path, monkeypatch):
    code = PROBLEMS[0]["code"].replace("import torch\n", "import torch\nfrom einops.layers import torch as layers\n", 1)
    (tmp_path / "x.jsonl").write_text(json.dumps(problem(3, 48, code)))
    monkeypatch.setenv("KERNELBENCH_DIR", str(tmp_path / "x.jsonl"))
    monkeypatch.setitem(sys.modules, "einops", None)
    complaint = "KernelBench/L3-048 imports einops, which is not installed. Run: pip install einops"
    with pytest.raises(MissingDataError, match=complaint):
        gym.make("KernelBench/L3-048-v0")
    variant = dataclasses.replace(load_task("KernelBench/L3-048"), id="KernelBench/L3-048:fp16")
    assert missing(variant) == complaint.replace("048", "048:fp16")
    assert missing(dataclasses.replace(variant, id="File/own")) == ""
    monkeypatch.delitem(sys.modules, "einops")
    (tmp_path / "einops.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert missing(variant) == ""


def test_an_environment_over_several_leaves_out_what_cannot_run(tmp_path, monkeypatch):
    code = PROBLEMS[0]["code"].replace("import torch\n", "import torch\nimport einops\n", 1)
    rows = [*PROBLEMS, *(problem(3, number, code) for number in (45, 46, 47, 48))]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setitem(sys.modules, "einops", None)
    with pytest.warns(UserWarning, match="left out") as said:
        env = gym.make("KernelGym/Kernel-v0", task=str(path), device="cpu")
    needs = "imports einops, which is not installed. Run: pip install einops"
    assert len(said) == 1
    assert str(said[0].message).endswith(
        "4 of the 7 tasks cannot run on this machine and are left out: "
        f"KernelBench/L3-045 {needs}; KernelBench/L3-046 {needs}; KernelBench/L3-047 {needs}; …\x1b[0m"
    )
    drawn = {env.reset(seed=seed)[1]["task_id"] for seed in range(40)}
    assert drawn == {"KernelBench/L1-001", "KernelBench/L1-002", "KernelBench/L2-030"}
    assert len(gym.make("KernelGym/Kernel-v0", task=str(path), pool="fake").unwrapped._tasks) == 7
    lacking = [f"{path}#KernelBench/L3-{number:03d}" for number in (47, 48)]
    with pytest.raises(
        MissingDataError, match=f"^None of the 2 tasks can run on this machine: KernelBench/L3-047 {needs}$"
    ):
        gym.make("KernelGym/Kernel-v0", task=lacking)
    with pytest.raises(MissingDataError, match=f"^KernelBench/L3-047 {needs}$"):
        gym.make("KernelGym/Kernel-v0", task=lacking[:1])


@pytest.mark.filterwarnings("ignore:.*known flaws")
def test_the_mix_is_made_without_einops(shared_data, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    monkeypatch.setitem(sys.modules, "einops", None)
    with pytest.warns(UserWarning, match="2 of the 250 tasks cannot run on this machine .*KernelBench/L3-048 imports"):
        env = gym.make("KernelBench/Mix-v0", device="cpu")
    assert len(env.unwrapped._tasks) == 248


def test_level_4_says_what_it_needs(shared_data, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    task = load_task("KernelBench/L4-016")
    assert missing(load_task("KernelBench/L3-050")) == missing(load_task("KernelGym/RowSum")) == ""
    monkeypatch.setitem(sys.modules, "transformers", None)
    lacking = "KernelBench/L4-016 imports transformers, which is not installed. Run: pip install transformers"
    with pytest.raises(MissingDataError, match=lacking):
        check_requirements(task)
    with pytest.raises(MissingDataError, match=lacking):
        kernelgym_env.score(task, "class ModelNew: ...")
    with pytest.raises(MissingDataError, match=lacking):
        gym.make("KernelBench/L4-016-v0")
    with pytest.raises(MissingDataError, match=lacking):
        gym.make("KernelGym/Kernel-v0").reset(options={"task": "KernelBench/L4-016"})
    assert gym.make("KernelBench/L4-016-v0", pool="fake").reset(seed=0)[1]["task_id"] == task.id
    assert main(["eval", "KernelBench/L4-016", __file__, "--device", "cpu"]) == 2
    assert re.search(lacking, capsys.readouterr().err)
    with Auditor("cpu", protocols=["strict"]) as auditor:
        record = auditor.audit(task)
    assert re.search(lacking, record["protocols"]["strict"]["why"])
    assert main(["audit", "KernelBench/L4-016", "--device", "cpu", "--out", str(tmp_path / "facts.json")]) == 1
    printed = capsys.readouterr()
    assert "missing" in printed.out and printed.err.endswith("Nothing was measured of any task; states: missing.\n")
    file = AuditFile(tmp_path / "facts.json")
    assert not file.has(task.id, task.hash, kind="cpu", scale="shipped", protocols=["strict"])  # tried again next time
    assert main(["roofline", "KernelBench/L4-016", "--json"]) == 1
    assert re.search(lacking, capsys.readouterr().out)
    monkeypatch.delitem(sys.modules, "transformers")
    (tmp_path / "transformers.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert re.search(r"needs the weights of gpt2, .*hub. Run: hf download gpt2", missing(task))
    snapshot = tmp_path / "hub" / "models--gpt2" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert missing(task)
    (snapshot / "model.safetensors").write_bytes(b"")
    assert missing(task) == ""
    assert "needs the weights of google/reformer-enwik8" in missing(load_task("KernelBench/L4-013"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 21))
def test_level_4_works_where_it_has_what_it_needs(shared_data, monkeypatch, number):
    monkeypatch.setenv("KERNELBENCH_DIR", str(shared_data("kernelbench.jsonl.gz")))
    task = load_task(f"KernelBench/L4-{number:03d}")
    if lacking := missing(task):
        pytest.skip(lacking)
    trial = try_task(task)
    assert trial.state != "fails", trial.error
