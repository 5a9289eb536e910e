"""``kernelgym roofline``: the least time that tasks take on devices, by the data sheets."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from kernelgym_env.cli.options import name_of
from kernelgym_env.cli.output import NEGATIVE, OK, console, print_json
from kernelgym_env.errors import unknown_name
from kernelgym_env.evaluation.protocols import get_protocol, protocol_names
from kernelgym_env.evaluation.roofline import MACHINES
from kernelgym_env.tasks import load_tasks
from kernelgym_env.tasks.selection import select
from kernelgym_env.units import duration

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "print the least time of tasks on devices"
DESCRIPTION = (
    "Count the operations and bytes of tasks at their GPU sizes, and divide by the rates of devices' data sheets. This "
    "needs no GPU. References run with your rights. Exit code 1 if a task's work cannot be counted."
)
_DEFAULT = "NVIDIA H200"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("suite", metavar="SUITE", help="a suite or a part of one, a task id, a file or a folder")
    parser.add_argument(
        "--id", action="append", default=[], metavar="ID", help="only this task, or those of a pattern; may be repeated"
    )
    parser.add_argument(
        "--on",
        action="append",
        type=name_of(_check_machine),
        default=[],
        metavar="NAME",
        help=f"a device by the name that its driver gives it; may be repeated (default: {_DEFAULT!r})",
    )
    parser.add_argument(
        "--protocol",
        type=name_of(get_protocol),
        default="strict",
        metavar="NAME",
        help=f"whose tolerance decides which precision is enough: {', '.join(protocol_names())} (default: strict)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Count and print."""
    from kernelgym_env.evaluation.roofline_table import roofline_table

    names = list(dict.fromkeys(arguments.on or [_DEFAULT]))
    tasks = select(load_tasks(arguments.suite), ids=arguments.id)
    rows = roofline_table(tasks, [MACHINES[name] for name in names], protocol=arguments.protocol)
    if arguments.json:
        print_json({"protocol": arguments.protocol, "tasks": [row.to_dict() for row in rows]})
    else:
        console().print(_table(rows, names))
    return NEGATIVE if any(row.work is None for row in rows) else OK


def _check_machine(name: str) -> None:
    if name not in MACHINES:
        raise unknown_name("device with a data sheet:", name, MACHINES)


def _table(rows: list[Any], names: list[str]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("task", no_wrap=True)
    for column in ("GFLOP", "MB", *names):
        table.add_column(column, justify="right")
    table.add_column("bound", overflow="fold")
    for row in rows:
        if row.work is None:
            table.add_row(row.task_id, "–", "–", *("–" for _ in names), row.why)
            continue
        bounds = " ".join(dict.fromkeys(row.bounds[name] for name in names))
        amounts = f"{row.work.flops / 1e9:.4g}", f"{row.work.bytes / 1e6:.4g}"
        table.add_row(row.task_id, *amounts, *(duration(row.floors_us[name]) for name in names), bounds)
    return table
