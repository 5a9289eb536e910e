"""``kernelgym redteam``: run hacks and honest kernels, and see whether the judge tells them apart."""

from __future__ import annotations

import argparse

from kernelgym_env import devices
from kernelgym_env.cli.options import add_device, add_protocol
from kernelgym_env.cli.output import NEGATIVE, OK, console, errors, print_json, progress
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.redteam.cases import find_cases

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "run hacks and honest kernels, and see whether the judge tells them apart"
DESCRIPTION = (
    "Judge every red-team case of a folder that this machine can run, and print what was expected against what was "
    "judged. Some cases attack the machine that they run on: use a machine or container that you can throw away."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="a folder of cases, or one case")
    add_device(parser, "where to run them (default: a GPU if there is one)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="only cases whose id or folder matches, e.g. 'C*'; may be repeated",
    )
    parser.add_argument(
        "--naive", action="store_true", help="also run each through a naive evaluator, in a process without protection"
    )
    add_protocol(parser, "they are")
    parser.add_argument(
        "--scale", type=int, default=0, metavar="N", help="factor on the tasks' sizes (default: 1 on a CPU, 8 on a GPU)"
    )
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="CPU threads of each process (default: torch's)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the cases and print."""
    from kernelgym_env.redteam.arena import Arena
    from kernelgym_env.redteam.report import FEW, confusion, each, failed

    if arguments.scale < 0:
        raise InvalidOptionError(f"--scale must be 0 (the device's default) or more, got {arguments.scale}.")
    kind = devices.resolve_device(arguments.device).partition(":")[0]
    found = find_cases(arguments.folder, arguments.only)
    cases = [case for case in found if not case.why_not(kind)]
    for case in found:
        if why := case.why_not(kind):
            errors().print(f"skipped {case.name}: {why}", style="dim")
    records = []
    options = {name: getattr(arguments, name) for name in ("device", "protocol", "scale", "threads", "naive")}
    stopped = None
    try:
        with Arena(**options) as arena, progress(len(cases)) as advance:
            for case in cases:
                record = arena.run(case)
                records.append(record)
                advance(f"{case.name}: {record.outcome.status}{'' if record.ok else ', not as expected'}")
    except KeyboardInterrupt as stop:
        stopped = stop  # what was judged is printed all the same
    if arguments.json:
        print_json([record.to_dict() for record in records])
    else:
        if len(records) <= FEW:
            console().print(each(records))
        console().print(confusion(records))
        if table := failed(records):
            console().print(table)
    if stopped is not None:
        raise stopped
    return OK if all(record.ok for record in records) else NEGATIVE
