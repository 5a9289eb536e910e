"""`EvaluationCache`: what is kept, and which files are not believed."""

import json
import os
import subprocess
import sys

import pytest

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.cache import KEPT, EvaluationCache
from kernelgym_env.evaluation.result import Evaluation, Finding, Status, Timing

KEY = {"task": "KernelGym/RowSum", "number": 1, "list": (1, 2)}
CORRECT = Evaluation(
    "KernelGym/RowSum",
    Status.CORRECT,
    speedup=2.0,
    times={"eager": Timing(4.0, 3.0, 5.0, 9, "fake")},
    findings=(Finding("A1", "note", "…"),),
    provenance={"versions": {"torch": "2"}},
)


@pytest.fixture(params=["memory", "disk"])
def cache(request, tmp_path):
    return EvaluationCache(tmp_path / "kept" if request.param == "disk" else None)


@pytest.fixture
def disk(tmp_path):
    cache = EvaluationCache(tmp_path / "kept")
    cache.save(KEY, CORRECT)
    (path,) = (tmp_path / "kept").rglob("*.json")
    return cache, path


def test_what_was_saved_is_loaded(cache):
    assert cache.load(KEY) is None
    assert cache.save(KEY, CORRECT)
    found = cache.load(KEY)
    assert repr(found.to_dict()) == repr(CORRECT.to_dict())
    assert cache.load({**KEY, "number": 2}) is None
    assert cache.save(KEY, Evaluation("KernelGym/RowSum", Status.WRONG))
    assert cache.load(KEY).status is Status.WRONG
    assert cache.ignored == 0


@pytest.mark.parametrize("status", sorted(set(Status) - KEPT))
def test_what_says_nothing_of_the_program_is_not_kept(cache, status):
    assert not cache.save(KEY, Evaluation("KernelGym/RowSum", status))
    assert cache.load(KEY) is None


def test_faults_timeouts_and_invalid_tasks_are_not_kept():
    assert not KEPT & {Status.FAULT, Status.TIMEOUT, Status.TASK_INVALID, Status.CRASH}


def test_memory_keeps_what_was_used_last():
    cache = EvaluationCache(limit=2)
    for number in (1, 2):
        cache.save({"number": number}, CORRECT)
    cache.load({"number": 1})
    cache.save({"number": 3}, CORRECT)
    assert [cache.load({"number": number}) is not None for number in (1, 2, 3)] == [True, False, True]


def _changed(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


SPOILT = {
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "empty": lambda path: path.write_bytes(b""),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "another form": lambda path: path.write_text("[]"),
    "faster": lambda path: _changed(path, lambda data: data["data"].update(speedup=99.0)),
    "another key": lambda path: _changed(path, lambda data: data["key"].update(number=2)),
    "a newer schema": lambda path: _changed(path, lambda data: data["data"].update(schema=99)),
    "written by others": lambda path: path.chmod(0o666),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link": lambda path: (path.rename(path.with_suffix(".real")), path.symlink_to(path.with_suffix(".real"))),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_file_is_as_good_as_none(disk, how):
    cache, path = disk
    assert cache.load(KEY) is not None
    SPOILT[how](path)
    assert cache.load(KEY) is None
    assert cache.ignored == 1
    if how != "a folder":  # which os.replace does not replace by a file
        cache.save(KEY, CORRECT)
        assert cache.load(KEY).speedup == 2.0


def test_files_are_for_their_user_alone_and_leave_nothing_beside(disk):
    cache, path = disk
    assert path.stat().st_mode & 0o077 == 0
    assert cache.folder.stat().st_mode & 0o022 == 0
    for _ in range(3):
        cache.save(KEY, CORRECT)
    assert list(path.parent.iterdir()) == [path]


def test_processes_write_at_the_same_time(tmp_path, repo_root):
    code = (
        "import sys\n"
        "from kernelgym_env.evaluation.cache import EvaluationCache\n"
        "from kernelgym_env.evaluation.result import Evaluation, Status\n"
        "cache = EvaluationCache(sys.argv[1])\n"
        "for number in range(200):\n"
        "    cache.save({'number': number % 5}, Evaluation('a/b', Status.CORRECT, feedback='x' * 20_000))\n"
        "    assert cache.load({'number': number % 5}).status is Status.CORRECT\n"
        "assert cache.ignored == 0\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=repo_root) for _ in range(2)]
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    assert len(list(tmp_path.rglob("*.json"))) == 5
    assert not list(tmp_path.rglob(".writing-*"))


@pytest.mark.parametrize("limit", [0, -1, 1.0, True, "3"])
def test_limits_that_cannot_be(limit):
    with pytest.raises(InvalidOptionError, match="limit of a cache"):
        EvaluationCache(limit=limit)
