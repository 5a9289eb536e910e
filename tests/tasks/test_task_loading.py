"""From files, folders, texts, suites and ids to tasks."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys

import pytest

from kernelgym_env.errors import InvalidOptionError, MissingDataError, UnknownNameError
from kernelgym_env.tasks import Task, load_task, load_tasks, suites, task_ids

SOURCE = '''"""Adds one."""
import torch
from torch import nn
N = {n}
class Model(nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(N)]
def get_init_inputs():
    return []
'''


def source(n: int = 8) -> str:
    return SOURCE.format(n=n)


@pytest.fixture
def rows(tmp_path):
    """Write rows to a JSON lines file and return its path."""

    def write(*items, name="tasks.jsonl"):
        path = tmp_path / name
        text = "".join(json.dumps(item) + "\n" for item in items)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def test_a_python_file(tmp_path):
    path = tmp_path / "plus one v2.py"
    path.write_bytes(b"\xef\xbb\xbf" + source().replace("\n", "\r\n").encode())
    for spec in (path, str(path)):
        (task,) = load_tasks(spec)
        assert task.id == "File/plus-one_v2"
        assert task.source == source()
        assert task.origin == str(path)
        assert task.description == "Adds one."
    assert load_task(path) == task


def test_a_file_named_like_a_version_gets_an_id_without_one(tmp_path):
    path = tmp_path / "softmax-v3.py"
    path.write_text(source())
    assert load_task(path).id == "File/softmax_v3"


def test_a_text():
    task = load_task(source())
    assert task.id.startswith("Text/") and task.id == load_task(source().replace("\n", "\r\n")).id
    assert task.id != load_task(source(9)).id
    with pytest.raises(InvalidOptionError, match="lacks class Model"):
        load_task("print(1)\n")


def test_a_folder_takes_what_fits_at_any_depth(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("task10.py", "task2.py", "sub/task2.py", ".hidden/no.py"):
        (tmp_path / name).write_text(source())
    (tmp_path / "helper.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("def (\n")
    (tmp_path / "latin.py").write_bytes(b"# \xe4\n")
    assert sorted(task.id for task in load_tasks(tmp_path)) == ["File/sub.task2", "File/task10", "File/task2"]
    assert [task.id for task in load_tasks(tmp_path) if "sub" not in task.id] == ["File/task2", "File/task10"]
    assert load_task(f"{tmp_path}#File/sub.task2").id == "File/sub.task2"
    with pytest.raises(InvalidOptionError, match=r"stands for 3 tasks.*#File/.*load_tasks"):
        load_task(tmp_path)


def test_a_checkout_of_kernelbench(tmp_path, monkeypatch):
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (tmp_path / "KernelBench" / "level2").mkdir()
    for name in ("19_ReLU.py", "2_Standard_matrix_multiplication_.py"):
        (folder / name).write_text(source())
    (tmp_path / "KernelBench" / "level2" / "7_Conv3d_ReLU.py").write_text(source())
    (tmp_path / "prompt_example.py").write_text(source())
    ids = ["KernelBench/L1-002", "KernelBench/L1-019", "KernelBench/L2-007"]
    for where in (tmp_path, tmp_path / "KernelBench"):
        tasks = load_tasks(where)
        assert [task.id for task in tasks] == ids
        assert [task.level for task in tasks] == [1, 1, 2]
        assert tasks[0].title == "Standard matrix multiplication"
        monkeypatch.setenv("KERNELBENCH_DIR", str(where))
        assert load_task("KernelBench/L1-019-v0") == tasks[1]
    assert load_task(folder / "19_ReLU.py") == tasks[1]
    with pytest.raises(MissingDataError, match="KernelBench/L1-003 is not among"):
        load_task("KernelBench/L1-003")
    assert "flaw-redundant" in tasks[2].tags and "flaw-identity" in tasks[1].tags


@pytest.mark.parametrize("name", ["tasks.jsonl", "tasks.jsonl.gz"])
def test_rows(rows, name):
    path = rows(
        {"level": 1, "problem_id": 19, "name": "19_ReLU", "code": source(1)},
        {"level_id": "2", "task_id": "7", "ref_code": source(2), "custom_code": "x"},
        {"id": "Mine/Add", "name": "Add", "source": source(3)},
        {"task_id": "KernelBench/L3-001", "code": source(4)},
        {"name": "my task", "code": source(5)},
        {"code": source(6), "id": None},
        Task("Own/Task", source(7), level=2, tags=("a",), sizes={"cpu": {"N": 2}}, origin="o", licence="l").to_dict(),
        name=name,
    )
    tasks = load_tasks(path)
    assert [task.id for task in tasks] == [
        "KernelBench/L1-019",
        "KernelBench/L2-007",
        "Mine/Add",
        "KernelBench/L3-001",
        "File/my-task",
        "File/tasks-006",
        "Own/Task",
    ]
    assert [task.constants()["N"] for task in tasks] == [1, 2, 3, 4, 5, 6, 7]
    assert tasks[0].title == "ReLU" and tasks[0].level == 1 and tasks[2].title == "Add"
    assert tasks[6].tags == ("a",) and tasks[6].sizes == {"cpu": {"N": 2}} and tasks[6].origin == "o"
    assert load_task(f"{path}#KernelBench/L1-019") == tasks[0]
    assert load_task(f"{path}#Own/Task-v0") == tasks[6]
    with pytest.raises(UnknownNameError, match="Did you mean 'Mine/Add'"):
        load_task(f"{path}#mine/add")


def test_rows_of_an_earlier_version_lack_the_input_laws(rows):
    row = Task("Own/Task", source(7), tags=("a",), input_laws=()).to_dict()
    assert load_task(rows(row)).input_laws == ()
    del row["input_laws"]
    task = load_task(rows(row))
    assert task.input_laws is None and task.tags == ("a",)


def test_rows_in_the_words_of_tasks_lose_nothing(rows):
    sizes, shapes = {"cpu": {"N": 2}}, [{"N": 3}]
    task = load_task(rows({"id": "Own/Task", "source": source(7), "sizes": sizes, "tags": ["a"], "level": 2, "x": 1}))
    assert task.sizes == sizes and task.tags == ("a",) and task.level == 2 and task.description == "Adds one."
    task = load_task(rows({"id": "task", "source": source(7), "shapes": shapes, "licence": "l", "title": None}))
    assert task.id == "File/task" and task.shapes == ({"N": 3},) and task.licence == "l"
    assert load_task(rows({"name": "a", "source": source(7), "sizes": sizes})).sizes == sizes
    with pytest.raises(InvalidOptionError, match="Tags of task 'Own/Task' must be a list"):
        load_tasks(rows({"id": "Own/Task", "source": source(7), "tags": "a"}))


def test_levels_of_rows(rows):
    for level, number in (("2", 2), (2.0, 2), ("level3", 3), (None, 0), ("", 0)):
        assert load_task(rows({"code": source(), "level": level})).level == number
    for level in ("one", 1.5, True, [1], float("nan"), "9" * 5000):
        with pytest.raises(InvalidOptionError, match="level must be an integer of at least 0, such as 2, got"):
            load_tasks(rows({"code": source(), "level": level}))


def test_names_in_other_letters_stay_apart(rows):
    names = ["日本語", "中国", "é"]
    tasks = load_tasks(rows(*({"name": name, "code": source()} for name in names)))
    assert [task.id for task in tasks] == [f"File/{name}" for name in names]


def test_what_is_no_file_is_left_out_or_refused(tmp_path, monkeypatch):
    folder = tmp_path / "level1"
    folder.mkdir()
    (folder / "gone.py").symlink_to(tmp_path / "nowhere")
    (folder / "loop.py").symlink_to(folder / "loop.py")
    os.mkfifo(folder / "pipe.py")
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(
        InvalidOptionError, match="3 Python files were looked at; .*gone.py cannot be read: it is a link"
    ):
        load_tasks(folder)
    (folder / "fine.py").write_text(source())
    assert [task.id for task in load_tasks(folder)] == ["File/fine"]
    for path in (folder / "pipe.py", tmp_path / "pipe.jsonl"):
        with pytest.raises(InvalidOptionError, match="cannot be read: it is neither file nor folder"):
            load_tasks(path)
    (folder / "1_x.py").symlink_to(tmp_path / "nowhere")
    (folder / "2_x.py").mkdir()
    monkeypatch.setenv("KERNELBENCH_DIR", str(tmp_path))
    for number, state in ((1, "a link that leads to no file"), (2, "a folder")):
        with pytest.raises(InvalidOptionError, match=f"{number}_x.py cannot be read: it is {state}. Put"):
            load_task(f"KernelBench/L1-{number:03d}")


def test_a_changed_file_is_read_anew(rows):
    path = rows({"code": source(1)})
    assert load_task(path).constants() == {"N": 1}
    rows({"code": source(22)})
    assert load_task(path).constants() == {"N": 22}


def test_rows_that_do_not_fit(rows, tmp_path):
    with pytest.raises(InvalidOptionError, match=r"more than one task with the id 'File/a'"):
        load_tasks(rows({"name": "a", "code": source()}, {"name": "a", "code": source()}))
    with pytest.raises(InvalidOptionError, match=r"needs the source as text under code.*has name"):
        load_tasks(rows({"name": "a"}))
    with pytest.raises(InvalidOptionError, match=r"'File/a' \(from .*tasks.jsonl\) lacks class Model"):
        load_tasks(rows({"name": "a", "code": "x = 1"}))
    with pytest.raises(InvalidOptionError, match="has no rows"):
        load_tasks(rows())
    for content, said in (
        (b"[1]\n", "line 1: needs a JSON object"),
        (b"\n{]\n", "line 2: not JSON"),
        (b"\xff", "read"),
    ):
        (tmp_path / "bad.jsonl").write_bytes(content)
        with pytest.raises(InvalidOptionError, match=said):
            load_tasks(tmp_path / "bad.jsonl")
    for content in (b"no gzip", gzip.compress(b"{}")[:-9], gzip.compress(b"{}" * 999)[:20] + b"\0" * 40):
        (tmp_path / "bad.jsonl.gz").write_bytes(content)
        with pytest.raises(InvalidOptionError, match="cannot be read"):
            load_tasks(tmp_path / "bad.jsonl.gz")


def test_suites_and_ids():
    assert [suite.name for suite in suites()] == ["core", "rl", "kernelbench"]
    assert [task.id for task in load_tasks("core")] == task_ids("core")
    assert len(task_ids()) == len(set(task_ids())) == len(task_ids("core")) + len(task_ids("rl")) + 270
    assert len(task_ids("KernelBench/L3")) == 50
    assert load_task("KernelGym/RowSoftmax") == load_task("KernelGym/RowSoftmax-v0")
    task = load_task("KernelGym/RowSoftmax")
    assert load_tasks(task) == [task] and load_task(task) is task
    with pytest.raises(UnknownNameError, match=r"suite 'cor'.*Did you mean 'core'"):
        task_ids("cor")
    with pytest.raises(InvalidOptionError, match="stands for 270 tasks"):
        load_task("kernelbench")


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ("KernelGym/rowsoftmax", UnknownNameError, "'KernelGym/rowsoftmax'.*Did you mean 'KernelGym/RowSoftmax'"),
        ("kernelgym/RowSoftmax-v0", UnknownNameError, "Did you mean 'KernelGym/RowSoftmax'"),
        ("RowSoftmax", UnknownNameError, "Did you mean 'KernelGym/RowSoftmax'"),
        ("KernelGym/RowSoftmax-v7", UnknownNameError, "'v7'.*Allowed: v0"),
        ("KernelBench/L1-101", UnknownNameError, "Did you mean 'KernelBench/L1-10"),
        ("cores", UnknownNameError, "Did you mean 'core'"),
        ("", UnknownNameError, "Unknown task id ''"),
        ("no/such/file.py", MissingDataError, "no file or folder 'no/such/file.py'"),
        ("no.jsonl#A/B", MissingDataError, "no file or folder 'no.jsonl'"),
        ("x" * 5000, UnknownNameError, "Unknown task id"),
        ("a\0b", UnknownNameError, "Unknown task id"),
        (3, InvalidOptionError, "got int"),
        (None, InvalidOptionError, "got NoneType"),
    ],
)
def test_what_is_nothing(spec, error, said):
    for load in (load_task, load_tasks):
        with pytest.raises(error, match=said):
            load(spec)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text(source())
    with pytest.raises(InvalidOptionError, match="not a kind of task file"):
        load_task(tmp_path / "a.txt")
    (tmp_path / "a.txt").unlink()
    with pytest.raises(InvalidOptionError, match="no Python files"):
        load_tasks(tmp_path)
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(InvalidOptionError, match=r"1 Python files were looked at.*lacks class Model"):
        load_tasks(tmp_path)


def test_loading_imports_no_torch_and_no_reference():
    code = (
        "import sys\n"
        "import kernelgym_env.tasks as tasks\n"
        "for task in tasks.load_tasks('core'): task.for_device('cpu').hash\n"
        "assert 'torch' not in sys.modules\n"
        "assert not [name for name in sys.modules if 'references' in name]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
