"""``kernelgym audit``: find out by the references alone which tasks can be won without the work."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from kernelgym_env.cli.options import add_device, name_of
from kernelgym_env.cli.output import NEGATIVE, OK, console, errors, print_json, progress
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.protocols import get_protocol, protocol_names
from kernelgym_env.tasks import load_tasks
from kernelgym_env.tasks.flaws import flaws_of
from kernelgym_env.tasks.selection import select
from kernelgym_env.units import duration

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "find out which tasks can be won without the work"
DESCRIPTION = (
    "Run the references of tasks, and nothing else, to find out what is accepted without the work: zeros, a constant, "
    "a copy of an input, the output for other inputs or other weights; and time, memory, randomness and what lower "
    "precision does. References run with your rights. Exit code 1 if a task has a flaw, or if none could be measured."
)
_SMALL = 1 << 18
_MEASURED = ("ok", "fails")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("suite", metavar="SUITE", help="a suite or a part of one, a task id, a file or a folder")
    add_device(parser, "where to run them (default: a GPU if there is one)")
    parser.add_argument(
        "--id", action="append", default=[], metavar="ID", help="only this task, or those of a pattern; may be repeated"
    )
    parser.add_argument(
        "--protocol",
        action="append",
        type=name_of(get_protocol),
        default=[],
        metavar="NAME",
        help=f"how answers are judged: {', '.join(protocol_names())}; may be repeated (default: strict, kernelbench)",
    )
    parser.add_argument(
        "--small",
        nargs="?",
        type=int,
        const=_SMALL,
        default=None,
        metavar="ELEMENTS",
        help=f"shrink each task to so many elements, for a CPU or a small card (without a number {_SMALL})",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the facts here after each task; tasks that the file has already, of the same source, kind of "
        "device, scale and protocols, are left out",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds after which a task is given up (default: 300)",
    )
    parser.add_argument(
        "--memory-gib",
        type=float,
        default=None,
        metavar="N",
        help="host memory that a task may take (default: three quarters of what there is)",
    )
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads (default: torch's)")


def run(arguments: argparse.Namespace) -> int:
    """Audit and print."""
    from kernelgym_env.audit import AuditFile, Auditor
    from kernelgym_env.audit.auditor import DEFAULT_PROTOCOLS

    if arguments.small is not None and arguments.small < 1:
        raise InvalidOptionError(
            f"--small must be an integer of at least 1, got {arguments.small}. Leave it out for shipped sizes."
        )
    protocols = arguments.protocol or list(DEFAULT_PROTOCOLS)
    tasks = select(load_tasks(arguments.suite), ids=arguments.id)
    file = AuditFile(arguments.out)
    with Auditor(
        arguments.device,
        protocols=protocols,
        elements=arguments.small or 0,
        deadline_s=arguments.deadline,
        memory_gib=arguments.memory_gib,
        threads=arguments.threads,
    ) as auditor:
        todo = [
            task
            for task in tasks
            if not file.has(
                task.id,
                task.for_device(auditor.kind).hash,
                kind=auditor.kind,
                scale=auditor.scale,
                protocols=protocols,
            )
        ]
        if len(todo) < len(tasks):
            errors().print(f"{len(tasks) - len(todo)} of {len(tasks)} are in {arguments.out} already.", style="dim")
        with progress(len(todo)) as advance:
            for task in todo:
                file.put(task.id, auditor.audit(task))
                advance(f"{task.id}: {_told(file.tasks[task.id], protocols)}")
    records = {task.id: file.tasks[task.id] for task in tasks}
    if arguments.json:
        print_json({**file.to_dict(), "tasks": records, "flaws": {name: _flaws(records[name]) for name in records}})
    else:
        console().print(_table(records, protocols))
    facts = [found for record in records.values() for found in record["protocols"].values()]
    if not any(found["state"] in _MEASURED for found in facts):
        states = ", ".join(sorted({found["state"] for found in facts}))
        errors().print(f"Nothing was measured of any task; states: {states}.", soft_wrap=True)
        return NEGATIVE
    return NEGATIVE if any(flaws for record in records.values() for flaws in _flaws(record).values()) else OK


def _flaws(record: Mapping[str, Any]) -> dict[str, list[str]]:
    shipped = record["scale"] == "shipped"
    return {name: list(flaws_of(facts, shipped=shipped)) for name, facts in record["protocols"].items()}


def _told(record: Mapping[str, Any], protocols: list[str]) -> str:
    flaws = _flaws(record)
    parts = []
    for name in protocols:
        facts = record["protocols"][name]
        seen = ", ".join(flaws[name]) or (facts["state"] if facts["state"] != "ok" else "no flaw")
        parts.append(f"{name}: {seen}")
    return "; ".join(parts)


def _table(records: Mapping[str, Mapping[str, Any]], protocols: list[str]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for column in ("task", "protocol", "state", "flaws", "passes in", "time", "launches"):
        table.add_column(column, no_wrap=column == "task", overflow="fold")
    for task_id, record in records.items():
        flaws = _flaws(record)
        for number, name in enumerate(protocols):
            facts = record["protocols"][name]
            passing = [form for form, found in facts.get("precision", {}).items() if found["passes"]]
            time, launch = facts.get("time_us"), facts.get("launch_us")
            table.add_row(
                "" if number else task_id,
                name,
                facts["state"] + (f": {facts['why']}" if facts.get("why") else ""),
                ", ".join(flaw.removeprefix("flaw-") for flaw in flaws[name]),
                ", ".join(passing),
                duration(time) if time else "–",
                f"{time / launch:.3g}" if time and launch else "–",
            )
    return table
