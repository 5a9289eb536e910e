"""Guards of the layout: `tasks` and `wrappers` lie at the root of a checkout and inside the installed package.

What goes wrong with such a layout is always the same: a sub-package or data file that the wheel lacks, an import that
works only from some working directories, or one module under two names. Each has its test here.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelgym_env

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"kernelgym_env": "kernelgym_env", "tasks": "kernelgym_env.tasks", "wrappers": "kernelgym_env.wrappers"}


def run(code: str, *, cwd: Path, path: Path | None = ROOT, ok: bool = True) -> str:
    """Run `code` in a new interpreter with `path` as PYTHONPATH; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout if ok else done.stderr


def files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder)


def copy_checkout(target: Path) -> Path:
    """Copy what a build needs, so that it leaves nothing in the checkout and takes nothing old from it."""
    for folder in PACKAGES:
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, target / name)
    return target


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    pytest.importorskip("setuptools", minversion="64", reason="building the wheel needs setuptools")
    source = copy_checkout(tmp_path_factory.mktemp("source"))
    run("import setuptools.build_meta as backend; backend.build_wheel('dist')", cwd=source, path=None)
    (built,) = (source / "dist").glob("*.whl")
    return zipfile.ZipFile(built)


# --- what is installed


def test_every_package_is_listed(setup_cfg: configparser.ConfigParser) -> None:
    found = {
        ".".join((package, *path.parent.parts))
        for folder, package in PACKAGES.items()
        for path in files(ROOT / folder)
        if path.name == "__init__.py"
    }
    assert setup_cfg["options"]["packages"].split() == sorted(found)


def test_the_wheel_holds_every_file_and_no_other(wheel: zipfile.ZipFile) -> None:
    expected = {
        f"{package.replace('.', '/')}/{path.as_posix()}"
        for folder, package in PACKAGES.items()
        for path in files(ROOT / folder)
    }
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == expected


def test_one_name_enters_the_top_level(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/top_level.txt"))
    assert wheel.read(name).decode().split() == ["kernelgym_env"]


def test_the_wheel_is_typed_and_knows_its_version(wheel: zipfile.ZipFile) -> None:
    assert "kernelgym_env/py.typed" in wheel.namelist()
    assert Path(wheel.filename or "").name.startswith(f"kernelgym_env-{kernelgym_env.__version__}-py3-none-any")


def test_the_wheel_imports_its_own_folders(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    printed = run(
        "import kernelgym_env.tasks, kernelgym_env.wrappers, sys\n"
        "print(kernelgym_env.tasks.__file__, kernelgym_env.wrappers.__file__)\n"
        "print([f for f in sys.meta_path if type(f).__module__ == 'kernelgym_env._checkout'])",
        cwd=tmp_path,
        path=tmp_path / "site",
    )
    inside = tmp_path / "site" / "kernelgym_env"
    assert printed.split("\n")[:2] == [f"{inside}/tasks/__init__.py {inside}/wrappers/__init__.py", "[]"]


# --- what is imported, and from where

IMPORT_ALL = """
import kernelgym_env
import kernelgym_env.tasks
from kernelgym_env import wrappers
import sys
assert sys.modules["kernelgym_env.tasks"] is kernelgym_env.tasks
assert sys.modules["kernelgym_env.wrappers"] is kernelgym_env.wrappers is wrappers
assert "tasks" not in sys.modules and "wrappers" not in sys.modules
for module in (kernelgym_env, kernelgym_env.tasks, wrappers):
    print(module.__file__)
"""


@pytest.mark.parametrize("folder", [".", "tests", "notebooks", "tasks"])
def test_imports_from_inside_the_checkout(folder: str) -> None:
    if not (ROOT / folder).is_dir():
        pytest.skip(f"no folder {folder}")
    printed = run(IMPORT_ALL, cwd=ROOT / folder).split()
    assert printed == [str(ROOT / name / "__init__.py") for name in ("kernelgym_env", "tasks", "wrappers")]


def test_imports_beside_modules_of_the_same_names(tmp_path: Path) -> None:
    for name in ("tasks", "wrappers"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong module')\n")
    printed = run(IMPORT_ALL, cwd=tmp_path).split()
    assert printed == [str(ROOT / name / "__init__.py") for name in ("kernelgym_env", "tasks", "wrappers")]


def test_imports_as_installed_for_development(tmp_path: Path) -> None:
    """With no PYTHONPATH; tells whether `pip install -e .` works, where it was done."""
    try:
        run("import kernelgym_env", cwd=tmp_path, path=None)
    except AssertionError:
        pytest.skip("kernelgym_env is not installed")
    run(IMPORT_ALL, cwd=tmp_path, path=None)


def test_a_checkout_uses_its_own_folders_although_another_is_installed(tmp_path: Path) -> None:
    mine = copy_checkout(tmp_path)
    # What the finder of an editable installation does: it answers for the names of the other checkout, and last.
    other_finder = f"""
import sys
from importlib.util import spec_from_file_location
class Other:
    @staticmethod
    def find_spec(name, path=None, target=None):
        folder = {{"kernelgym_env.tasks": "tasks", "kernelgym_env.wrappers": "wrappers"}}.get(name)
        if folder:
            return spec_from_file_location(name, {str(ROOT)!r} + "/" + folder + "/__init__.py")
sys.meta_path.append(Other)
"""
    printed = run(other_finder + IMPORT_ALL, cwd=mine, path=None).split()
    assert printed == [str(mine / name / "__init__.py") for name in ("kernelgym_env", "tasks", "wrappers")]


def test_a_module_imported_by_the_name_of_its_folder_holds_the_same_objects() -> None:
    run(
        "import inspect, kernelgym_env.tasks, kernelgym_env.wrappers, tasks, wrappers\n"
        "for one, two in ((tasks, kernelgym_env.tasks), (wrappers, kernelgym_env.wrappers)):\n"
        "    for name in getattr(two, '__all__', ()):\n"
        "        value = getattr(two, name)\n"
        "        if inspect.isclass(value) or inspect.isfunction(value):\n"
        "            assert getattr(one, name) is value, name\n",
        cwd=ROOT,
    )


def test_a_missing_folder_is_a_plain_import_error(tmp_path: Path) -> None:
    mine = copy_checkout(tmp_path)
    shutil.rmtree(mine / "wrappers")
    said = run(
        "import sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if '__editable__' not in getattr(f, '__module__', '')]\n"
        "import kernelgym_env.wrappers",
        cwd=mine,
        ok=False,
    )
    assert "ModuleNotFoundError: No module named 'kernelgym_env.wrappers'" in said


def test_reloading_leaves_one_finder() -> None:
    run(
        "import importlib, sys, kernelgym_env, kernelgym_env.tasks\n"
        "before = list(sys.meta_path)\n"
        "importlib.reload(kernelgym_env)\n"
        "assert len(sys.meta_path) == len(before), sys.meta_path\n"
        "import kernelgym_env.wrappers",
        cwd=ROOT,
    )


def _imports(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def test_imports_are_absolute_and_by_the_one_name() -> None:
    """A relative import, or one of `tasks.x`, would make a second module of the same file."""
    wrong = []
    for folder in PACKAGES:
        for path in files(ROOT / folder):
            if path.suffix != ".py" or not (ROOT / folder / path.parent / "__init__.py").exists():
                continue
            for node in _imports(ROOT / folder / path):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                relative = isinstance(node, ast.ImportFrom) and node.level > 0
                if relative or any(name.split(".")[0] in ("tasks", "wrappers") for name in names):
                    wrong.append(f"{folder}/{path}:{node.lineno}")
    assert not wrong


def test_tasks_and_wrappers_import_modules_not_the_package_root() -> None:
    """A name of the root may not exist yet when they are imported; a module always does."""
    wrong = []
    for folder in ("tasks", "wrappers"):
        for path in files(ROOT / folder):
            if path.suffix != ".py" or not (ROOT / folder / path.parent / "__init__.py").exists():
                continue
            for node in _imports(ROOT / folder / path):
                if isinstance(node, ast.ImportFrom) and node.module == "kernelgym_env":
                    for alias in node.names:
                        module = ROOT / "kernelgym_env" / alias.name
                        if not (module.is_dir() or module.with_suffix(".py").exists() or alias.name in PACKAGES):
                            wrong.append(f"{folder}/{path}:{node.lineno} {alias.name}")
    assert not wrong


# --- what an import costs


def test_importing_loads_nothing_heavy() -> None:
    heavy = ("torch", "triton", "cupy", "ray", "matplotlib", "openai", "stable_baselines3", "datasets")
    printed = run(f"import sys, kernelgym_env; print([n for n in {heavy} if n in sys.modules])", cwd=ROOT)
    assert printed.strip() == "[]"


def test_importing_takes_little_longer_than_gymnasium() -> None:
    # Processor time, not the clock's: other test processes run beside this one. Best of three, the caches being warm.
    code = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"
    ours, gymnasium = (
        min(float(run(code.format(name), cwd=ROOT)) for _ in range(3)) for name in ("kernelgym_env", "gymnasium")
    )
    assert ours < 2.5 * gymnasium


# --- the names of the package


@pytest.mark.parametrize("name", kernelgym_env.__all__)
def test_public_names_resolve(name: str) -> None:
    value = getattr(kernelgym_env, name)
    assert value is getattr(kernelgym_env, name)
    assert name in dir(kernelgym_env)
    source = kernelgym_env._SOURCES.get(name)
    assert source is None or vars(sys.modules[source])[name] is value


def test_public_names_are_sorted() -> None:
    assert kernelgym_env.__all__ == sorted(kernelgym_env.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kernelgym_env' has no attribute 'load_taks'"):
        _ = kernelgym_env.load_taks


def test_type_checkers_see_the_lazy_names() -> None:
    tree = ast.parse((ROOT / "kernelgym_env" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    subpackages = {name: seen.pop(name) for name in ("tasks", "wrappers")}
    assert set(subpackages.values()) == {"kernelgym_env"}
    assert seen == kernelgym_env._SOURCES


def test_make_typecheck_finds_errors_in_every_folder(tmp_path: Path) -> None:
    if not shutil.which("make"):
        pytest.skip("no make")
    pytest.importorskip("mypy")
    for folder, package in PACKAGES.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(f'name: str = "{package}"\n')
        others = [other for other in PACKAGES.values() if other != package]
        lines = [f"from {other} import name as n{i}" for i, other in enumerate(others)]
        lines += [f"x{i}: int = n{i}" for i in range(len(others))]
        (tmp_path / folder / "module.py").write_text("\n".join(lines) + "\n")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    done = subprocess.run(
        ["make", "typecheck", f"VENV_PYTHON={sys.executable}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode != 0
    errors = re.findall(r"^(\S+):(\d+): error: .*\[(.*)\]$", done.stdout, flags=re.MULTILINE)
    assert sorted(errors) == [(f"{folder}/module.py", line, "assignment") for folder in PACKAGES for line in "34"]


# --- what is asked of a user's machine


def _requirements(text: str) -> Iterator[tuple[str, str]]:
    for line in text.strip().splitlines():
        if line and not line.startswith("#"):
            name, bounds = re.fullmatch(r"([\w-]+)(?:\[[\w,-]+\])?([^;]*)(?:;.*)?", line.strip()).groups()  # type: ignore
            yield name.lower().replace("_", "-"), bounds.strip()


def test_no_release_is_capped(setup_cfg: configparser.ConfigParser) -> None:
    texts = {"": setup_cfg["options"]["install_requires"], **setup_cfg["options.extras_require"]}
    for extra, text in texts.items():
        for name, bounds in _requirements(text):
            if name == "kernelgym-env":
                continue
            # The releases of these two are numbered after the CUDA that the extra is named for.
            allowed = (
                r">=12[\d.]*,<13" if extra == "gpu-cu12" and name in ("cuda-bindings", "cupti-python") else r">=[\d.]+"
            )
            assert re.fullmatch(allowed, bounds), f"{extra}: {name}{bounds}"


def test_what_the_tests_use_is_pinned_within_the_bounds(setup_cfg: configparser.ConfigParser) -> None:
    pinned: dict[str, list[str]] = {}
    for name, bounds in _requirements((ROOT / "constraints.txt").read_text(encoding="utf-8")):
        assert bounds.startswith("=="), f"{name} is not pinned"
        pinned.setdefault(name, []).append(bounds.removeprefix("=="))
    options, extras = setup_cfg["options"], setup_cfg["options.extras_require"]
    for text in (options["install_requires"], extras["test"], extras["notebooks"]):
        for name, bounds in _requirements(text):
            least = [int(part) for part in bounds.removeprefix(">=").split(".")]
            assert name in pinned
            for version in pinned[name]:
                assert [int(part) for part in version.split(".")] >= least, f"{name}=={version} is below {bounds}"


def test_ci_runs_the_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("make ")]
    assert commands[0] == "make test && exit 0"
    assert "make test " in (ROOT / "README.md").read_text(encoding="utf-8")
