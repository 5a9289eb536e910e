"""``kernelgym tasks``: list tasks."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from kernelgym_env.cli.output import OK, console, print_json
from kernelgym_env.errors import MissingDataError, UnknownNameError, unknown_name
from kernelgym_env.settings import kernelbench_dir
from kernelgym_env.tasks import load_tasks, registry
from kernelgym_env.tasks.kernelbench import flaws, ids
from kernelgym_env.tasks.model import ENV_VERSION, Task

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "list tasks"
DESCRIPTION = (
    "List the tasks of all suites, of one suite or a part of one, or of a file or folder of your own. Where the data "
    "of KernelBench's problems is not on this machine, a line says so; --suite kernelbench and --json list their ids."
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
    parser.add_argument("--level", type=int, metavar="N", help="only tasks of this level")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="T", help="only tasks with this tag; may be repeated"
    )


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    missing: dict[str, str] = {}
    rows = list(_rows(arguments.suite, missing))
    if arguments.level is not None and all(row.level != arguments.level for row in rows):
        raise unknown_name("level", str(arguments.level), {str(row.level) for row in rows})
    for tag in arguments.tag:
        if all(tag not in row.tags for row in rows):
            raise unknown_name("tag", tag, {tag for row in rows for tag in row.tags})
    rows = [row for row in rows if arguments.level in (None, row.level) and set(arguments.tag) <= set(row.tags)]
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
    return [*level, *(word for tag in arguments.tag for word in ("--tag", tag))]


def _why(reasons: Sequence[str]) -> str:
    """Why data is missing, in one sentence for all tasks that lack it."""
    if len(set(reasons)) == 1:
        return reasons[0]
    return f"What has no data is not among the problems at KERNELBENCH_DIR={kernelbench_dir()}."


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
            yield _Row(task_id, level, "", "", ("kernelbench", f"level{level}", *flaws.flaw_tags(level, number)), False)
            missing[task_id] = str(error)


def _row(task: Task) -> _Row:
    return _Row(task.id, task.level, task.title, task.description, task.tags, True)
