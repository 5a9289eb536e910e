"""KernelBench's ids and its data, where that is here."""

from __future__ import annotations

import json

import pytest

from kernelgym_env.errors import InvalidOptionError, MissingDataError
from kernelgym_env.tasks import load_task, load_tasks, task_ids
from kernelgym_env.tasks.kernelbench import FLAWS, IDS, LEVELS, flaw_tags, make_id, parse_id


@pytest.fixture
def data(shared_data, monkeypatch):
    path = shared_data("kernelbench.jsonl.gz")
    monkeypatch.setenv("KERNELBENCH_DIR", str(path))
    return path


def test_ids_are_known_without_data(monkeypatch, tmp_path):
    monkeypatch.delenv("KERNELBENCH_DIR", raising=False)
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path))
    assert len(IDS) == 270 and list(IDS) == task_ids("kernelbench")
    assert IDS[0] == "KernelBench/L1-001" and IDS[-1] == "KernelBench/L4-020"
    assert all(make_id(*parse_id(task_id)) == task_id for task_id in IDS)
    assert parse_id("KernelBench/L1-19") is None and parse_id("KernelGym/RowSoftmax") is None
    with pytest.raises(MissingDataError, match="Set KERNELBENCH_DIR"):
        load_task("KernelBench/L1-019")


def test_flaws_are_problems_that_exist():
    for levels in FLAWS.values():
        for level, numbers in levels.items():
            assert all(1 <= number <= LEVELS[level] for number in numbers)
    assert flaw_tags(1, 1) == ()


@pytest.mark.parametrize("kind", ["absent", "text", "empty"])
def test_data_that_is_not_there(tmp_path, monkeypatch, kind):
    path = tmp_path / "data"
    if kind == "text":
        path.write_text("x")
    elif kind == "empty":
        path.mkdir()
    monkeypatch.setenv("KERNELBENCH_DIR", str(path))
    with pytest.raises(MissingDataError, match=r"KernelBench.*KERNELBENCH_DIR=.*Set KERNELBENCH_DIR"):
        load_task("KernelBench/L1-019")


def test_two_rows_for_one_problem(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    path.write_text((json.dumps({"level": 1, "problem_id": 1, "code": "x"}) + "\n") * 2)
    monkeypatch.setenv("KERNELBENCH_DIR", str(path))
    with pytest.raises(InvalidOptionError, match="more than one row for KernelBench/L1-001"):
        load_task("KernelBench/L1-001")


def test_every_problem_loads(data):
    tasks = load_tasks("kernelbench")
    assert [task.id for task in tasks] == list(IDS)
    assert load_tasks(data) == tasks
    assert len({task.hash for task in tasks}) == 270
    assert all(task.title and task.level and task.licence for task in tasks)
    by_id = {task.id: task for task in tasks}
    assert by_id["KernelBench/L1-019"].title == "ReLU"
    assert load_task(f"{data}#KernelBench/L1-019") == by_id["KernelBench/L1-019"]
    assert by_id["KernelBench/L1-001"].with_sizes({"N": 64}).constants() == {"N": 64}
    assert [task.id for task in load_tasks("KernelBench/L4")] == [task.id for task in tasks if task.level == 4]


def test_published_answers_hold_references_of_levels_1_to_3(shared_data):
    tasks = load_tasks(shared_data("cuda_l1_a100.jsonl.gz"))
    assert [task.id for task in tasks if task.level < 4] == [task_id for task_id in IDS if "/L4" not in task_id]
