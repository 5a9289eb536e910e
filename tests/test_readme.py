"""Runs what the documentation shows: each python block, and each `kernelgym` command of the bash blocks.

A python block that begins with a comment like ``# my_task.py`` is also a file of that name, for the blocks around it.
The commands of a page run one after the other in one folder.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from hub import Hub, problem, serving

from kernelgym_env.evaluation.denied import SMALL
from kernelgym_env.evaluation.protocols import get_protocol
from kernelgym_env.evaluation.sandbox.plan import GUARANTEES, LAYERS
from kernelgym_env.limits import MAX_FEEDBACK_CHARS, MAX_SOURCE_CHARS

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# (\w+\.py)\n")
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#([^)]*))?\)")


def blocks(page: str, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if kind == language]


def numbered(language: str) -> list[object]:
    return [
        pytest.param(text, id=f"{Path(page).stem}-{number}")
        for page in PAGES
        for number, text in enumerate(blocks(page, language), start=1)
    ]


def commands(page: str) -> list[str]:
    """The commands of a page, in its order."""
    lines = [line.partition("  #")[0].strip() for text in blocks(page, "bash") for line in text.splitlines()]
    return [line for line in lines if line.startswith("kernelgym ")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the pages name; a machine with nothing but a CPU."""
    for page in PAGES:
        for text in blocks(page, "python"):
            if name := NAMED.match(text):
                (tmp_path / name[1]).write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("KERNELBENCH_DIR", raising=False)
    monkeypatch.setenv("KERNELGYM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@contextmanager
def what_it_fetches(text: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hub on this machine, where the text fetches something."""
    if "fetch" not in text:
        yield
        return
    pytest.importorskip("pyarrow", reason="fetching reads Parquet")
    with serving(Hub()) as hub:
        hub.commit([problem(level, number) for level in (1, 2, 3) for number in (1, 2)])
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_something_to_run() -> None:
    assert sum(len(commands(page)) for page in PAGES) >= 40
    assert len(blocks("README.md", "python")) >= 4


@pytest.mark.parametrize("text", numbered("python"))
def test_python_blocks(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "block.py").write_text(text, encoding="utf-8")
    with what_it_fetches(text, monkeypatch):
        run([sys.executable, "-W", "error", "block.py"], folder)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder for all of a page, since later commands take what earlier ones wrote."""
    for command in commands(page):
        if ".parquet" in command and not find_spec("pyarrow"):
            continue
        with what_it_fetches(command, monkeypatch):
            printed = run([sys.executable, "-m", "kernelgym_env.cli", *shlex.split(command)[1:]], folder)
        assert printed or "--html" in command


def test_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    shown = [
        name for page in PAGES for text in blocks(page, "bash") for name in re.findall(r"^make ([\w-]+)", text, re.M)
    ]
    assert {"demo", "test"} <= set(shown) <= set(targets)


def test_extras_exist() -> None:
    extras = re.findall(r"^([\w-]+) =", (ROOT / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE)
    shown = [
        extra for page in PAGES for text in blocks(page, "bash") for extra in re.findall(r"'\.\[([\w-]+)\]'", text)
    ]
    assert {"gpu-cu12", "gpu-cu13", "kernelbench", "notebooks", "sb3"} == set(shown) <= set(extras)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target, anchor in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        path = (ROOT / page).parent / target
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


# --- the tables


def table(heading: str, page: str = "README.md") -> list[list[str]]:
    """The rows of the table below a heading, without its head."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"# {heading}\n")[2].partition("\n#")[0]
    rows = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


def test_verdicts_lists_every_finding() -> None:
    told = [names(row[0])[0] for row in table("Findings", "docs/verdicts.md")]
    sources = (ROOT / "kernelgym_env/evaluation").glob("*.py")
    given = {name for path in sources for name in re.findall(r'finding="(\w+)"', path.read_text(encoding="utf-8"))}
    assert sorted(told) == sorted(given)


def test_every_set_and_category_of_tasks_is_named() -> None:
    from kernelgym_env.tasks.kernelbench import CATEGORIES
    from kernelgym_env.tasks.registry import suites, task_ids

    rows = {
        name: row[1] for row in table("Suites and sets", "docs/tasks.md") for name in re.findall(r"`([^`]+)`", row[0])
    }
    sets = {suite.name for suite in suites()} | {part for suite in suites() for part in suite.parts}
    assert set(rows) == sets - {"KernelBench/L2", "KernelBench/L3"}  # which stand for themselves in a row of four
    for name in ("core", "kernelbench", "KernelBench/Representative"):
        assert str(len(task_ids(name))) in rows[name]
    told = {row[0][0]: set(re.findall(r"`([^`]+)`", row[1])) for row in table("Choosing", "docs/tasks.md")}
    assert told == {
        str(level): {name for name, levels in CATEGORIES.items() if level in levels} for level in (1, 2, 3, 4)
    }


def test_every_status_is_explained() -> None:
    from kernelgym_env.evaluation.result import Evaluation, Status
    from kernelgym_env.rewards import kevin

    rewards = {name: row[2] for row in table("Reward") for name in names(row[0])}
    assert sorted(rewards) == sorted(status.value for status in Status)
    for status in Status:
        pays = kevin(Evaluation("a/b", status, speedup=2.0))
        assert pays == (2.3 if rewards[status.value].startswith("0.3 + speedup") else 0.0)
    assert kevin(Evaluation("a/b", Status.CORRECT)) == 0.3


def test_verdicts_explains_every_status() -> None:
    from kernelgym_env.evaluation.result import Evaluation, Status
    from kernelgym_env.rewards import kevin

    rows = table("What leads to each status", "docs/verdicts.md")
    assert [names(row[0]) for row in rows] == [[status.value] for status in Status]
    assert [row[4][0] for row in rows] == [str(int(kevin(Evaluation("a/b", status)))) for status in Status]
    text = (ROOT / "docs/verdicts.md").read_text(encoding="utf-8")
    deadlines = get_protocol("strict").deadlines
    told = f"import {deadlines.import_s:g} s, import with a compiler {deadlines.build_s:g} s, "
    assert (
        f"{told}first call {deadlines.first_call_s:g} s" in text
        and f"block of timed calls {deadlines.run_s:g} s" in text
    )
    for number in (MAX_SOURCE_CHARS, MAX_FEEDBACK_CHARS, SMALL):
        assert f"{number:,}" in text


def test_the_threat_model_explains_every_layer_and_guarantee() -> None:
    page = "docs/threat_model.md"
    assert [names(row[0])[0] for row in table("The layers", page)] == list(LAYERS)
    told = {row[0]: tuple(names(row[1])) for row in table("Guarantees", page)}
    assert told == dict(GUARANTEES)
    cells = " ".join(row[0] for row in table("What is in force where", page))
    assert {name for name in LAYERS if not name.startswith("landlock")} <= set(names(cells))


def test_the_red_team_s_table_is_that_of_the_cases() -> None:
    from kernelgym_env.redteam import find_cases

    source = (ROOT / "tests/redteam/test_redteam.py").read_text(encoding="utf-8")
    rows = {names(row[0])[0]: row for row in table("The set of this repository", "docs/redteam.md")}
    cases = find_cases(ROOT / "tests/redteam/cases")
    assert list(rows) == [case.id for case in cases]
    for case in cases:
        _, title, kind, expect, language, caught = rows[case.id]
        assert (title, kind, names(expect)) == (case.title, case.kind, [case.expect])
        assert language == case.language + ", CPU" * (case.device == "cpu")
        assert caught == ("no" if f'"{case.name}": "' in source else "yes")


def test_every_page_is_listed() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Layout\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| \[(docs/\w+\.md)\]", text, re.MULTILINE)) == list(PAGES[1:])


def test_every_built_in_pool_is_named() -> None:
    from kernelgym_env import KernelEnv, pools

    named = str(KernelEnv.__doc__).partition("pool: who evaluates:")[2].partition("feedback:")[0]
    concepts = (
        (ROOT / "docs/concepts.md").read_text(encoding="utf-8").partition("\n## Pools\n")[2].partition("\n## ")[0]
    )
    assert all(f"``{name}``" in named and f"`{name}`" in concepts for name in pools._BUILT_IN)


def test_every_key_of_info_is_explained() -> None:
    import gymnasium as gym

    explained = [name for row in table("What `info` holds") for name in names(row[0])]
    with gym.make("KernelGym/Fake-v0") as env:
        _, info = env.reset(seed=0)
        kinds = {name: row[1] for row in table("What `info` holds") for name in names(row[0])}
        assert explained == list(info)
        for played in (info, env.step("class ModelNew: ...")[4]):
            for name, value in played.items():
                assert kinds[name] == ("float64[turns]" if name == "turn_returns" else type(value).__name__), name


def test_every_command_is_listed() -> None:
    from kernelgym_env.cli.command import _COMMANDS

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `kernelgym (\w+)", text, re.MULTILINE) == list(_COMMANDS)


def test_options_are_listed_and_described() -> None:
    import inspect

    from kernelgym_env import KernelEnv

    listed = (ROOT / "README.md").read_text(encoding="utf-8").partition("Options of `gym.make`:")[2].partition(";")[0]
    assert re.findall(r"`(\w+)`", listed) == list(inspect.signature(KernelEnv).parameters)[:-1]  # and `unknown`


def test_it_imports_where_posix_is_missing(folder: Path) -> None:
    """What the table says of Windows, as far as Linux can show it: the modules and functions that it lacks are gone."""
    (folder / "block.py").write_text(
        "import os, signal, socket, sys\n"
        "import gymnasium as gym, numpy, rich.console, jinja2\n"
        "for name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'):\n"
        "    sys.modules[name] = None\n"
        "for module, name in ((os, 'register_at_fork'), (os, 'getuid'), (os, 'fork'), (os, 'memfd_create'),\n"
        "                     (os, 'sched_getaffinity'), (signal, 'SIGKILL'), (socket, 'AF_UNIX')):\n"
        "    delattr(module, name)\n"
        "import kernelgym_env, kernelgym_env.tasks, kernelgym_env.wrappers, kernelgym_env.spaces\n"
        "env = gym.make('KernelGym/RowSum-v0', pool='fake')\n"
        "env.reset(seed=0)\n"
        "assert env.step('# fake: speedup=2\\nclass ModelNew: ...')[1] == 2.3\n"
        "assert kernelgym_env.load_tasks('core')\n",
        encoding="utf-8",
    )
    run([sys.executable, "block.py"], folder)


def test_the_local_pool_says_that_it_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgym_env.errors import InvalidOptionError
    from kernelgym_env.pools.local import LocalPool

    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InvalidOptionError, match="needs Linux, this is darwin; pool='fake'"):
        LocalPool()


def test_line_lengths() -> None:
    for page in PAGES:
        prose = BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
        assert not [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")]
