"""Fetching the data set, from a server on this machine."""

from __future__ import annotations

import json
import socket

import pytest

pytest.importorskip("pyarrow", reason="the data set is in Parquet files")

from hub import Hub, problem, serving

from kernelgym_env.cli import main
from kernelgym_env.errors import DownloadError, InvalidOptionError, MissingDataError, UnknownNameError
from kernelgym_env.tasks import load_task, load_tasks
from kernelgym_env.tasks.kernelbench import fetched, problem_names
from kernelgym_env.tasks.kernelbench.fetch import fetch

PROBLEMS = [problem(1, 1), problem(1, 2), problem(2, 1), problem(3, 50)]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNELBENCH_DIR", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(Hub()) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url + "/")
        hub.commit(PROBLEMS)
        yield hub


def test_fetched_problems_are_tasks(hub):
    with pytest.raises(MissingDataError, match="kernelgym tasks fetch kernelbench"):
        load_task("KernelBench/L1-002")
    manifest = fetch()
    assert (manifest.commit, manifest.problems) == (hub.branches["main"], 4)
    assert manifest.version == "no published version"
    task = load_task("KernelBench/L1-002-v0")
    assert task.source == PROBLEMS[1]["code"] and task.title == "Add 2" and task.level == 1
    assert fetched.find() == (fetched.save(PROBLEMS, manifest), manifest)
    assert task.origin == str(fetched.find()[0])
    assert problem_names()["KernelBench/L3-050"] == "50_Add_50_"
    with pytest.raises(MissingDataError, match="L1-003 is not among the problems at .*fetched from"):
        load_task("KernelBench/L1-003")
    with pytest.raises(MissingDataError, match="Level 4 is not in the data set"):
        load_task("KernelBench/L4-001")


def test_the_same_commit_is_loaded_once(hub):
    fetch()
    before = list(hub.asked)
    assert len(before) == 7  # the revision, three files, and where each of them is stored
    assert fetch(hub.branches["main"]) == fetch()
    assert [path for path in hub.asked[len(before) :] if "/revision/" not in path] == []


def test_a_later_commit_takes_the_place_of_the_first(hub):
    first = fetch()
    hub.commit([problem(1, 1, PROBLEMS[1]["code"])])
    second = fetch()
    assert second.content_hash != first.content_hash and second.problems == 1
    assert load_task("KernelBench/L1-001").source == PROBLEMS[1]["code"]
    assert fetch(first.commit) == first
    assert load_task("KernelBench/L1-001").source == PROBLEMS[0]["code"]


def test_what_is_expected(hub):
    first = fetch(expect="")
    assert fetch(expect=first.content_hash) == first
    with pytest.raises(InvalidOptionError, match=f"is no published version .* expected was {'0' * 64}"):
        fetch(expect="0" * 64)
    hub.commit([problem(1, 1)])
    with pytest.raises(InvalidOptionError, match="expected was"):
        fetch(expect=first.content_hash)
    assert fetched.find()[1] == first
    with pytest.raises(UnknownNameError, match=r"version or content hash.*'v1'.*v0, v0.1, v0.2"):
        fetch(expect="v1")


def test_the_version_is_told(hub, shared_data):
    rows = [
        {"level": task.level, "problem_id": int(task.id[-3:]), "name": "", "code": task.source}
        for task in load_tasks(shared_data("kernelbench.jsonl.gz"))
        if task.level < 4
    ]
    hub.commit(rows)
    manifest = fetch(expect="v0.2")
    assert (manifest.version, manifest.problems) == ("v0.2", 250)
    assert len(load_tasks("KernelBench/250")) == 250
    with pytest.raises(InvalidOptionError, match="is v0.2 with the content hash .* expected was v0.1"):
        fetch(expect="v0.1")


def test_a_damaged_cache_is_said_and_fetched_again(hub):
    manifest = fetch()
    path, _ = fetched.find()
    path.write_text(path.read_text().replace("torch.randn", "torch.zeros"))
    with pytest.raises(InvalidOptionError, match="has changed since it was fetched"):
        load_task("KernelBench/L1-001")
    assert fetch() == manifest and load_task("KernelBench/L1-001").source == PROBLEMS[0]["code"]
    path.unlink()
    with pytest.raises(InvalidOptionError, match="is gone"):
        load_task("KernelBench/L1-001")
    (path.parent / "manifest.json").write_text("{}")
    with pytest.raises(InvalidOptionError, match="manifest.json is damaged"):
        load_task("KernelBench/L1-001")
    assert fetch() == manifest


def test_a_set_directory_goes_before_what_was_fetched(hub, tmp_path, monkeypatch):
    fetch()
    (tmp_path / "x.jsonl").write_text(json.dumps(problem(1, 1, PROBLEMS[3]["code"])))
    monkeypatch.setenv("KERNELBENCH_DIR", str(tmp_path / "x.jsonl"))
    assert load_task("KernelBench/L1-001").source == PROBLEMS[3]["code"]


@pytest.mark.parametrize("revision", ["gone", "a/b"])
def test_a_revision_that_the_hub_does_not_have(hub, revision):
    with pytest.raises(DownloadError, match="answered 404 .*HF_ENDPOINT"):
        fetch(revision)


@pytest.mark.parametrize("revision", ["", "a b", "a?b"])
def test_a_revision_that_is_none(hub, revision):
    with pytest.raises(InvalidOptionError, match="A revision is"):
        fetch(revision)
    assert hub.asked == []


def test_answers_of_another_form(hub, monkeypatch):
    main_commit = hub.branches["main"]
    name = "data/level_1-00000-of-00001.parquet"
    hub.commits[main_commit][name] = b"not Parquet"
    with pytest.raises(InvalidOptionError, match=f"{name} cannot be read as Parquet"):
        fetch()
    hub.commit([problem(1, 1), problem(1, 101)])
    with pytest.raises(DownloadError, match="a row that is no problem of KernelBench"):
        fetch()
    hub.commits[hub.branches["main"]] = {"README.md": b""}
    with pytest.raises(DownloadError, match="names no commit with files like"):
        fetch()
    hub.answer = lambda path: (200, "", b"<html>")  # a proxy's page, say
    with pytest.raises(DownloadError, match="describes no data set"):
        fetch()
    assert fetched.find() is None


def test_no_server(hub, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(DownloadError, match="could not be fetched: .*refused.*KERNELBENCH_DIR"):
        fetch()
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    with pytest.raises(InvalidOptionError, match="must be an http or https address"):
        fetch()


def test_the_command(hub, capsys, monkeypatch, tmp_path):
    assert main(["tasks", "fetch", "kernelbench"]) == 0
    printed = capsys.readouterr().out
    manifest = fetched.find()[1]
    assert "4 problems of KernelBench (no published version) are in" in printed
    assert manifest.content_hash in printed and manifest.commit in printed
    for arguments in (["tasks", "--json", "fetch", "kernelbench"], ["tasks", "fetch", "kernelbench", "--json"]):
        assert main(arguments) == 0
        assert json.loads(capsys.readouterr().out)["content_hash"] == manifest.content_hash
    assert main(["tasks", "fetch", "kernelbench", "--revision", "gone"]) == 3
    assert "answered 404" in capsys.readouterr().err
    assert main(["tasks", "fetch", "kernelbench", "--expect", "v0.2"]) == 2
    assert main(["tasks", "fetch", "core"]) == 2
    assert main(["tasks", "--suite", "kernelbench", "--json"]) == 0
    assert sum(row["available"] for row in json.loads(capsys.readouterr().out)["tasks"]) == 4
    monkeypatch.setenv("KERNELBENCH_DIR", str(tmp_path))
    assert main(["tasks", "fetch", "kernelbench"]) == 0
    assert "so they are not used" in capsys.readouterr().out
