"""The submission's side: what it asks, what it leaves to Ninja, what it says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension

from kernelgym_env.evaluation.building.client import Client

Ask = dict[str, Any]


class Judge:
    """Answers as told, and notes what it was asked."""

    def __init__(self, *units: dict[str, Any], data: bytes = b"") -> None:
        self.units, self.data, self.asked = list(units), data, []  # type: ignore[var-annotated]

    def __call__(self, request: Ask) -> tuple[Ask, list[int]]:
        self.asked.append(request)
        fds = []
        for unit in self.units:
            if unit["code"] == 0:
                fd = os.memfd_create("object")
                os.write(fd, self.data)
                os.lseek(fd, 0, os.SEEK_SET)
                fds.append(fd)
        return {"units": self.units} if self.units else {"declined": "why not"}, fds


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Calls of Ninja; `load_inline` goes no further."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(cpp_extension, "_import_module_from_library", lambda *_: "module")
    calls: list[str] = []
    client = Client(lambda build_directory, verbose, error_prefix: calls.append(build_directory))
    monkeypatch.setattr(cpp_extension, "_run_ninja_build", client.run)
    monkeypatch.setattr(Client, "under_test", client, raising=False)
    return calls


def build(judge: Judge, name: str, source: str = "int f() { return 1; }", **options: Any) -> Client:
    client: Client = Client.under_test  # type: ignore[attr-defined]
    client.open(judge)
    try:
        cpp_extension.load_inline(name=name, cpp_sources=[source], functions=["f"], **options)
    finally:
        client.close()
    return client


def object_of(folder: Path) -> bytes:
    source = folder / "o.cpp"
    source.write_text("int kernelgym() { return 1; }")
    subprocess.run(["c++", "-fPIC", "-c", str(source), "-o", str(folder / "o.o")], check=True)
    return (folder / "o.o").read_bytes()


def test_text_flags_and_compiler_are_asked_for_and_the_object_is_linked(stock: list[str], tmp_path: Path) -> None:
    judge = Judge({"code": 0, "output": ""}, data=object_of(tmp_path))
    build(judge, "one", extra_cflags=["-O3", "-DX=2"])
    (unit,) = judge.asked[0]["units"]
    assert unit["kind"] == "cxx" and unit["name"] == "main.cpp" and unit["compiler"] == cpp_extension.get_cxx_compiler()
    assert "int f()" in unit["text"] and {"-O3", "-DX=2", "-DTORCH_EXTENSION_NAME=one"} <= set(unit["flags"])
    library = tmp_path / "one" / "one.so"
    assert library.exists() and not stock
    made = library.stat().st_mtime_ns
    client: Client = Client.under_test  # type: ignore[attr-defined]
    client.open(judge)
    client.run(str(tmp_path / "one"), False, "")
    assert library.stat().st_mtime_ns == made  # not linked again


def test_without_an_answer_ninja_runs(stock: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(Judge(), "declined")
    missing = {"code": 1, "output": "main.cpp:1:10: fatal error: x.h: No such file or directory"}
    build(Judge(missing), "missing")
    assert len(stock) == 2
    judge = Judge({"code": 0, "output": ""})
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "own.h").write_text("")
    build(judge, "beside", '#include "own.h"\nint f() { return 1; }')
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/tmp")
    build(judge, "environment")
    monkeypatch.delenv("CPLUS_INCLUDE_PATH")
    build(judge, "large", "//" + "x" * 1_000_000 + "\nint f() { return 1; }")
    assert len(stock) == 5 and not judge.asked


def test_another_compiler_on_the_search_path_is_used(
    stock: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c++").write_text('#!/bin/sh\nexec g++ "$@"\n')
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    judge = Judge({"code": 0, "output": ""})
    build(judge, "path")
    assert len(stock) == 1 and not judge.asked


def test_a_child_process_does_not_ask(stock: list[str]) -> None:
    judge = Judge({"code": 0, "output": ""})
    client: Client = Client.under_test  # type: ignore[attr-defined]
    client.open(judge)
    client._pid = -1
    client.run("/nowhere", False, "")
    assert stock == ["/nowhere"] and not judge.asked


def test_an_error_is_raised_as_torch_does(stock: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = "main.cpp: In function 'int f()':\nmain.cpp:2:9: error: expected ';'\n"
    with pytest.raises(RuntimeError, match="Error building extension 'broken': ") as caught:
        build(Judge({"code": 1, "output": said}), "broken")
    path = tmp_path / "broken" / "main.cpp"
    assert f"{path}:2:9: error: expected ';'" in str(caught.value) and "FAILED: main.o" in str(caught.value)
    assert "ninja: build stopped: subcommand failed." in str(caught.value)
    assert isinstance(caught.value.__cause__, subprocess.CalledProcessError)
    with pytest.raises(RuntimeError, match=r"^Error building extension 'loud'$"):
        build(Judge({"code": 1, "output": said}), "loud", verbose=True)
    assert "loud/main.cpp:2:9: error" in capfd.readouterr().out
