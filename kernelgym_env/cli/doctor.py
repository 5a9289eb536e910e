"""``kernelgym doctor``: what works on this machine."""

from __future__ import annotations

import argparse

from rich.table import Table
from rich.text import Text

from kernelgym_env import devices
from kernelgym_env import doctor as examination
from kernelgym_env.cli.output import NEGATIVE, OK, console, print_json, waiting

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "say what works on this machine, and what to install"
DESCRIPTION = "Say what works on this machine and what to install or change. Nothing is changed."
_COLOURS = {"ok": "green", "missing": "red", "note": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--evaluate",
        action="store_true",
        help="also judge a small submission on the CPU and, if there is one, on a GPU",
    )


def run(arguments: argparse.Namespace) -> int:
    """Look and print."""
    with waiting("Looking at this machine"):
        checks = examination.run()
    works = examination.evaluation_works(checks)
    if arguments.evaluate and works:
        for device in ("cpu", "cuda") if devices.cuda_device_names() else ("cpu",):
            with waiting(f"Judging a small submission on {device}"):
                checks.append(examination.evaluate(device))
        works = examination.evaluation_works(checks)
    if arguments.json:
        print_json({"works": works, "checks": [check.to_dict() for check in checks]})
        return OK if works else NEGATIVE
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("what", no_wrap=True)
    table.add_column("state", no_wrap=True)
    # one column for both, since two would be too narrow for most words on a terminal of 80 columns
    table.add_column("found, and → what to do", overflow="fold")
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            table.add_section()
            table.add_row(Text(group, style="bold"))
        said = Text(check.detail)
        if check.advice:
            said.append(f"\n→ {check.advice}", style="italic")
        table.add_row(f"  {check.name}", Text(check.state, style=_COLOURS[check.state]), said)
    out = console()
    out.print(table)
    lacking = ", ".join(check.name for check in checks if check.essential and check.state != "ok")
    if not works:
        out.print(f"Submissions cannot be evaluated here: see {lacking}.")
    elif arguments.evaluate:
        out.print("Submissions can be evaluated here.")
    else:
        out.print("Submissions can be evaluated here. `kernelgym doctor --evaluate` judges a small one to make sure.")
    return OK if works else NEGATIVE
