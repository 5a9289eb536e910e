"""What one submission leaves is never what another one builds with."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Judge

from kernelgym_env.evaluation.building.service import Build, Builder
from kernelgym_env.evaluation.result import Status

CASES = Path(__file__).resolve().parents[2] / "redteam" / "cases"
TEXT = "int planted() { return 1; }\n"

VICTIM = """
import torch
from torch.utils.cpp_extension import load_inline

CODE = {code!r}
_ext = {call}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return _ext.half(x)
"""

pytestmark = pytest.mark.timeout(600)


def contents(folder: Path) -> dict[str, str]:
    """Digests of all that later builds read."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def ask(builder: Builder, flags: list[str]) -> Any:
    def asked(**changes: Any) -> tuple[dict[str, Any], list[int], Build]:
        unit = {"kind": "cxx", "name": "main.cpp", "text": TEXT, "flags": flags, "compiler": "c++", **changes}
        build = Build()
        answer, fds, _ = builder.build({"units": [unit]}, 60.0, build)
        return answer, fds, build

    return asked


@pytest.mark.slow
@pytest.mark.parametrize("name", ["E23-cache-of-builds", "E24-object-under-anothers-key", "E25-compiler-left-behind"])
def test_an_attack_gets_nowhere_and_the_next_build_is_untouched(fast: Judge, cache: Path, name: str) -> None:
    source = (CASES / name / "submission.py").read_text()
    call = source.partition("_ext = ")[2].partition("\n")[0]
    code = source.partition('CODE = r"""')[2].partition('"""')[0]
    victim = VICTIM.format(code=code, call=call)
    before = fast(victim)
    assert before.status is Status.CORRECT, before.feedback
    there = contents(cache / "builds")
    attack = fast(source)
    assert attack.status is Status.CORRECT, attack.feedback  # it raises if anything of it succeeds
    # the forged requests did reach the judge
    assert bool(attack.provenance["builds"]["declined"]) is name.startswith("E24")
    now = contents(cache / "builds")
    assert {path: digest for path, digest in now.items() if path in there} == there
    after = fast(victim)
    assert after.status is Status.CORRECT and after.provenance["builds"]["units"][0]["how"] == "cached"


def test_objects_are_sealed_copies(ask: Any) -> None:
    answer, fds, _ = ask()
    assert answer["units"][0]["code"] == 0
    (fd,) = fds
    with pytest.raises(PermissionError):
        os.write(os.open(f"/proc/self/fd/{fd}", os.O_WRONLY), b"planted")
    with pytest.raises((PermissionError, OSError), match="not permitted|Invalid"):
        os.ftruncate(fd, 0)
    os.close(fd)


def test_a_key_holds_all_that_an_object_depends_on(builder: Builder, ask: Any, flags: list[str]) -> None:
    _, fds, first = ask()
    _, more, again = ask()
    _, other_flags, third = ask(flags=[*flags, "-O2"])
    _, other_text, fourth = ask(text=TEXT + "\n")
    for fd in (*fds, *more, *other_flags, *other_text):
        os.close(fd)
    assert again.units[0]["how"] == "cached"
    assert third.units[0]["how"] != "cached" and fourth.units[0]["how"] != "cached"
    assert first.units[0]["ok"]


def test_what_changes_with_time_is_not_kept(builder: Builder, ask: Any) -> None:
    text = "const char* when() { return __DATE__ __TIME__; }\n"
    before = len(contents(builder.cache.folder))
    _, fds, build = ask(text=text)
    os.close(fds[0])
    assert build.units[0]["ok"] and len(contents(builder.cache.folder)) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../main.cpp"},
        {"name": "slim/x.cpp"},
        {"name": ".hidden"},
        {"name": 1},
        {"kind": "ld"},
        {"compiler": "sh"},
        {"kind": "nvcc", "compiler": "sh"},
        {"compiler": "c++ -fplugin=x.so"},
        {"flags": ["-fplugin=x.so"]},
        {"flags": ["-I/tmp"]},
        {"flags": None},
        {"flags": ["-O3"] * 1000},
        {"text": 'asm(".incbin \\"/etc/passwd\\"");'},
        {"text": "#if __has_include(<x.h>)\n#endif"},
        {"text": "x" * (1 << 21)},
        {"text": 7},
    ],
)
def test_forged_requests_are_declined(ask: Any, changes: dict[str, Any]) -> None:
    answer, fds, build = ask(**changes)
    assert set(answer) == {"declined"} and not fds and build.declined


@pytest.mark.parametrize("request_", [None, [], {}, {"units": []}, {"units": [None]}, {"units": [{}] * 99}])
def test_so_are_requests_in_no_known_form(builder: Builder, request_: object) -> None:
    answer, fds, _ = builder.build(request_, 1.0, Build())
    assert set(answer) == {"declined"} and not fds


def test_a_source_cannot_read_what_is_private_while_it_is_compiled(ask: Any, builder: Builder) -> None:
    secret = builder.cache.folder.parent / "secret.h"
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text("#error kept-to-itself\n")
    for path in (secret, Path.home() / ".bashrc", Path(__file__)):
        answer, fds, _ = ask(text=f'#include "{path}"\n')
        assert answer["units"][0]["code"] != 0 and not fds
        assert "kept-to-itself" not in answer["units"][0]["output"]
        assert "No such file" in answer["units"][0]["output"] or "denied" in answer["units"][0]["output"]


@pytest.mark.slow
def test_precompiled_headers_can_be_read_and_not_written(builder: Builder, flags: list[str]) -> None:
    folder = builder.precompiled.find(flags, "slim", "c++")
    assert folder is not None and (folder / "torch" / "extension.h.gch").exists()
    for path in folder.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022
    there = contents(folder)
    probe = f"sh -c 'touch {folder}/planted; echo x >> {folder}/torch/extension.h; ls {folder}/torch'"
    worker = builder.zygote.fork({}, role="compile", reads=[str(folder)])
    try:
        command = {
            "name": "probe",
            "command": ["sh", "-c", probe[7:-1]],
            "needs": [str(folder / "torch" / "extension.h")],
        }
        answer = worker.ask({"files": {}, "choices": [command]}, 30.0)
    finally:
        worker.close()
    assert answer["name"] == "probe" and "extension.h.gch" in answer["output"]
    assert contents(folder) == there


@pytest.fixture(autouse=True)
def _nothing_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before + 16
