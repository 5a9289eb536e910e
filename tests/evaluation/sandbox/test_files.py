"""What a submission cannot read, write or change: tried by a real one."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import numpy
import torch
from programs import RIGHT

import kernelgym_env
from kernelgym_env import settings
from kernelgym_env.evaluation import harness

ROOT = Path(kernelgym_env.__file__).resolve().parents[1]
TAG = secrets.token_hex(8)


def _state(path):
    found = os.stat(path)
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def test_nothing_outside_the_scratch_is_written(inside, tmp_path):
    places = [
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/etc",
        "/usr/lib",
        str(Path.home()),
        str(tmp_path),
        str(ROOT),
        str(Path(torch.__file__).parent),
        str(Path(numpy.__file__).parents[1]),
        str(settings.runtime_dir()),
        os.sep,
    ]
    code = f"""
result = {{}}
for place in {places!r}:
    name = os.path.join(place, "kg_test_{TAG}")
    result[place] = [
        attempt(lambda: open(name, "w").write("x")),
        attempt(os.mkdir, name + "_dir"),
        attempt(os.symlink, "/", name + "_link"),
        attempt(os.link, os.path.abspath(__file__), name + "_hard"),
        attempt(os.mkfifo, name + "_fifo"),
    ]
"""
    result = inside(code)
    for place in places:
        assert [name for name in os.listdir(place) if TAG in name] == [], place
        # a temporary folder of one's own may be written to, all else raises
        if not place.startswith(("/tmp", "/var/tmp", "/dev/shm")):
            assert "done" not in result[place], place


def test_files_outside_are_not_changed(inside, tmp_path):
    own = tmp_path / "file.txt"
    own.write_text("untouched")
    targets = [str(own), harness.__file__, torch.__file__, "/etc/passwd", str(ROOT / "tasks" / "__init__.py")]
    before = {path: _state(path) for path in targets}
    code = f"""
result = {{}}
for path in {targets!r}:
    result[path] = [
        attempt(open, path, "r+b"),
        attempt(open, path, "ab"),
        attempt(os.truncate, path, 0),
        attempt(os.chmod, path, 0o777),
        attempt(os.chown, path, os.getuid(), -1),
        attempt(os.utime, path),
        attempt(os.setxattr, path, "user.kg", b"1"),
        attempt(os.remove, path),
        attempt(os.rename, path, path + "_moved"),
        attempt(os.replace, os.path.abspath(__file__), path),
    ]
"""
    result = inside(code)
    assert {path: _state(path) for path in targets} == before
    assert all("done" not in states for states in result.values()), result


def test_what_is_private_is_not_read(inside, tmp_path):
    canary = tmp_path / "canary"
    canary.write_text(TAG)
    runtime = settings.runtime_dir() / f"canary-{TAG}"
    runtime.write_text(TAG)
    secret = [
        str(canary),
        str(runtime),
        harness.__file__,
        kernelgym_env.__file__,
        str(ROOT / "tasks" / "__init__.py"),
        str(next((ROOT / "tasks" / "core" / "references").glob("*.py"))),
        str(ROOT / "README.md"),
        str(Path(__file__)),
        "/etc/shadow",
        "/proc/1/environ",
    ]
    folders = [str(tmp_path), str(ROOT / "tasks"), str(settings.runtime_dir()), "/home", "/root", "/var/log", "/run"]
    code = f"""
result = [{{}}, {{}}]
for path in {secret!r}:
    result[0][path] = attempt(lambda: open(path, "rb").read())
for path in {folders!r}:
    try:
        result[1][path] = os.listdir(path)
    except OSError as error:
        result[1][path] = []
"""
    try:
        files, names = inside(code)
    finally:
        runtime.unlink()
    assert {path for path, state in files.items() if state == "done"} == set()
    # a folder on the way to the interpreter may be there, with nothing in it but the way
    parts = {part for path in (torch.__file__, os.__file__, str(settings.runtime_dir())) for part in Path(path).parts}
    for path, found in names.items():
        assert set(found) <= parts | {"judge-"} or all(name.startswith("judge-") for name in found), (path, found)


def test_a_task_s_reference_is_nowhere_to_be_found(inside):
    code = """
found = set()
own = os.path.dirname(os.path.abspath(__file__))
temporary = () if sys.prefix.startswith("/tmp/") else ("/tmp",)  # an interpreter there brings its library
for folder in (own, os.path.dirname(own), *temporary, "/proc/self/cwd"):
    for place, _, names in os.walk(folder):
        found |= {name for name in names if name.endswith(".py")}
result = [
    sorted(found),
    [
        path
        for module in list(sys.modules.values())
        if module.__name__.split(".")[0] == "kernelgym_env"
        and (path := getattr(module, "__file__", None))
        and attempt(lambda: open(path).read(1)) == "done"
    ],
]
"""
    scratch, package = inside(code)
    assert package == []
    assert len(scratch) == 1, scratch


def test_another_judge_s_folder_is_out_of_reach(inside, pool, local_pool):
    local_pool.warm("cpu")
    others = [str(path) for path in settings.runtime_dir().glob("judge-*")]
    assert len(others) >= 2
    code = f"""
own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
result = {{}}
for path in {others!r}:
    if path != own:
        result[path] = [attempt(os.listdir, path), attempt(lambda: open(path + "/zygote.log").read())]
    else:
        result[path] = [attempt(lambda: open(path + "/zygote.log").read())]
"""
    assert all("done" not in states for states in inside(code).values())


def test_a_link_left_by_a_build_is_not_followed(tmp_path):
    from kernelgym_env.evaluation.scratch import write_text

    folder, outside = tmp_path / "job", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("untouched")
    (folder / "submission.py").symlink_to(outside)
    assert write_text(folder, "submission.py", "new").read_text() == "new"
    assert outside.read_text() == "untouched"
    (folder / "data").symlink_to(tmp_path)
    with contextlib.suppress(OSError):
        write_text(folder, "data/outside", "new")
    assert outside.read_text() == "untouched"
    assert write_text(folder, "a/b/c.txt", "deep").read_text() == "deep"


def test_scratch_and_temporary_folder_are_writable_and_go_away(inside):
    code = """
import tempfile
own = os.getcwd()
with open("here", "w") as file:
    file.write("x")
os.makedirs("a/b")
with open("/tmp/literal", "w") as file:
    file.write("x")
result = [own, tempfile.mkdtemp(), os.environ["HOME"], open("here").read()]
"""
    own, temporary, home, text = inside(code)
    assert text == "x"
    assert temporary.startswith(own) and home.startswith(own)
    assert not Path(own).exists()
    assert not Path("/tmp/literal").exists()


def test_devices_are_few(inside):
    code = """
result = sorted(name for name in os.listdir("/dev")) if attempt(os.listdir, "/dev") == "done" else []
mounts = open("/proc/self/mounts").read().splitlines()
"""
    allowed = {"fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"}
    assert set(inside(code)) <= allowed


def test_the_judged_source_itself_works(judge):
    assert judge(RIGHT).correct
