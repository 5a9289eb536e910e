"""``kernelgym tasks``: list tasks; ``kernelgym tasks fetch``: bring their data to this machine."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from kernelgym_env.cli.output import FAULT, OK, console, errors, print_json, waiting
from kernelgym_env.errors import DownloadError, MissingDataError, UnknownNameError
from kernelgym_env.settings import kernelbench_dir
from kernelgym_env.tasks import load_tasks, registry
from kernelgym_env.tasks.kernelbench import fetched, ids, loader
from kernelgym_env.tasks.kernelbench.versions import VERSIONS
from kernelgym_env.tasks.model import ENV_VERSION, Task
from kernelgym_env.tasks.selection import select

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "list tasks, fetch their data"
DESCRIPTION = (
    "List the tasks of all suites, of one suite or a part of one, or of a file or folder of your own. Where the data "
    "of KernelBench's problems is not on this machine, a line says so; --suite kernelbench and --json list their ids."
)
_FETCH_HELP = "fetch KernelBench's problems from the Hugging Face Hub"
_FETCH_DESCRIPTION = (
    "Fetch KernelBench's problems of levels 1 to 3 from the Hugging Face Hub to this machine's cache. They are used "
    "where KERNELBENCH_DIR is not set."
)


@dataclass(frozen=True)
class _Row:
    id: str
    level: int
    title: str
    description: str
    tags: tuple[str, ...]
    available: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    suites = ", ".join(suite.name for suite in registry.suites())
    parser.add_argument(
        "--suite",
        metavar="NAME",
        help=f"{suites}, a part such as KernelBench/L1, or a file or folder (default: all suites)",
    )
    parser.add_argument(
        "--id", action="append", default=[], metavar="ID", help="only this task, or those of a pattern; may be repeated"
    )
    parser.add_argument("--level", type=int, metavar="N", help="only tasks of this level")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="T", help="only tasks with this tag or category; may be repeated"
    )
    actions = parser.add_subparsers(title="actions", metavar="fetch", dest="action")
    action = actions.add_parser("fetch", help=_FETCH_HELP, description=_FETCH_DESCRIPTION, allow_abbrev=False)
    action.add_argument("fetched", metavar="SUITE", choices=("kernelbench",), help="kernelbench")
    action.add_argument(
        "--revision", default="main", metavar="R", help="branch, tag or commit of the data set (default: main)"
    )
    action.add_argument(
        "--expect",
        default="",
        metavar="V",
        help=f"fail unless the problems are this version ({', '.join(VERSIONS)}) or have this content hash",
    )
    # the default would undo an option that stands before the action
    action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON on stdout")


def run(arguments: argparse.Namespace) -> int:
    """List them, or fetch."""
    if arguments.action == "fetch":
        return _fetch(arguments)
    missing: dict[str, str] = {}
    levels = [] if arguments.level is None else [arguments.level]
    rows = select(_rows(arguments.suite, missing), ids=arguments.id, levels=levels, tags=arguments.tag)
    absent = [row for row in rows if not row.available]
    notes = [_why([missing[row.id] for row in absent])] if absent else []
    if arguments.json:
        print_json({"tasks": [{**vars(row), "env_id": row.id + ENV_VERSION} for row in rows], "notes": notes})
        return OK
    if arguments.suite is None and absent:
        rows = [row for row in rows if row.available]
        options = ["--suite", "kernelbench", *_filters(arguments)]
        notes.insert(
            0,
            f"{len(absent)} of KernelBench's problems have no data on this machine: "
            f"`kernelgym tasks {shlex.join(options)}` lists their ids.",
        )
    table = Table()
    table.add_column("id", no_wrap=True)
    table.add_column("level", justify="right")
    table.add_column("title")
    table.add_column("tags")
    for row in rows:
        title = row.title if row.available else "(no data on this machine)"
        table.add_row(row.id, str(row.level or "–"), title, ", ".join(row.tags), style="" if row.available else "dim")
    out = console()
    if rows or not absent:
        out.print(table if rows else "No task has all of this.")
    if notes:
        out.print(" ".join(notes))
    return OK


def _filters(arguments: argparse.Namespace) -> list[str]:
    """The options besides ``--suite``, as they were given."""
    level = [] if arguments.level is None else ["--level", str(arguments.level)]
    chosen = [word for task_id in arguments.id for word in ("--id", task_id)]
    return [*chosen, *level, *(word for tag in arguments.tag for word in ("--tag", tag))]


def _fetch(arguments: argparse.Namespace) -> int:
    from kernelgym_env.tasks.kernelbench.fetch import fetch

    try:
        with waiting("fetching"):
            manifest = fetch(arguments.revision, expect=arguments.expect)
    except DownloadError as error:
        errors().print(f"kernelgym: {error}", soft_wrap=True)
        return FAULT
    found = fetched.find()
    assert found is not None
    if arguments.json:
        print_json({**vars(manifest), "path": str(found[0])})
        return OK
    out = console()
    out.print(f"{manifest.problems} problems of KernelBench ({manifest.version}) are in {found[0]}.", soft_wrap=True)
    out.print(f"data set      {manifest.dataset} at commit {manifest.commit}", soft_wrap=True)
    out.print(f"content hash  {manifest.content_hash}", soft_wrap=True)
    if kernelbench_dir() is not None:
        out.print(f"KERNELBENCH_DIR={kernelbench_dir()} is set, so they are not used.", soft_wrap=True)
    return OK


def _why(reasons: Sequence[str]) -> str:
    """Why data is missing, in one sentence for all tasks that lack it."""
    if len(set(reasons)) == 1:
        return reasons[0]
    place = kernelbench_dir()
    return f"What has no data is not among the problems {f'at KERNELBENCH_DIR={place}' if place else 'fetched'}."


def _rows(suite: str | None, missing: dict[str, str]) -> Iterator[_Row]:
    """A row for each task; why data is missing goes to `missing`, by task id."""
    if (
        suite is not None
        and not registry.is_suite(suite)
        and (suite.startswith((".", "/", "~")) or Path(suite).expanduser().exists())
    ):
        yield from (_row(task) for task in load_tasks(suite))
        return
    try:
        listed = registry.task_ids(suite)
    except UnknownNameError as error:
        raise UnknownNameError(f"{error} Or give a file or folder with tasks; there is none of this name.") from None
    for task_id in listed:
        try:
            yield _row(registry.find_task(task_id))
        except MissingDataError as error:
            level, number = ids.parse_id(task_id) or (0, 0)
            yield _Row(task_id, level, "", "", loader.tags_of(level, number), False)
            missing[task_id] = str(error)


def _row(task: Task) -> _Row:
    return _Row(task.id, task.level, task.title, task.description, task.tags, True)
