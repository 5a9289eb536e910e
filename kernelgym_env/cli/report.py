"""``kernelgym report``: the figures of a run."""

from __future__ import annotations

import argparse
import math

from rich.table import Table

from kernelgym_env.cli.output import OK, console, print_json
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.keeping import named, write_whole
from kernelgym_env.reports.figures import milestones
from kernelgym_env.reports.page import as_html
from kernelgym_env.reports.report import Report, load, make_report

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "add_select", "interval", "report_table", "run", "select_of"]

HELP = "tell the figures of a run, with intervals"
DESCRIPTION = (
    "Tell correctness, fast_p and speedups of a run over all tasks of its plan, solved or not, with 95% intervals over "
    "tasks: as a table, as JSON, or as a page with plots."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("trajectories", metavar="RUN", help="the folder of a run, or a file of trajectories")
    add_select(parser)
    parser.add_argument(
        "--at-least",
        action="store_true",
        help="let a speedup of exactly p count for fast_p, which as published it does not",
    )
    parser.add_argument("--html", default="", metavar="FILE", help="write a page with plots, and print nothing")


def add_select(parser: argparse.ArgumentParser) -> None:
    """Add ``--select``."""
    parser.add_argument(
        "--select",
        default="best",
        metavar="last|best|K",
        help="which turns of an episode count: the last alone, the best, the best of the first K (default: best)",
    )


def select_of(text: str) -> str | int:
    """What ``--select`` says.

    Raises:
        InvalidOptionError: for anything else.
    """
    if text in ("last", "best"):
        return text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise InvalidOptionError(f"--select must be last, best or a number of turns of at least 1, got {text!r}.")


def run(arguments: argparse.Namespace) -> int:
    """Make it and print it."""
    report = make_report(
        load(arguments.trajectories), select=select_of(arguments.select), strict=not arguments.at_least
    )
    if arguments.html:
        _write(arguments.html, as_html(report))
    if arguments.json:
        print_json(report.to_dict())
    elif not arguments.html:
        out = console()
        out.print(report_table(report))
        for note in report.notes:
            out.print(note, soft_wrap=True)
    return OK


def _write(name: str, page: str) -> None:
    try:
        write_whole(named(name), page, private=False)
    except OSError as error:
        raise InvalidOptionError(f"{name!r} cannot be written: {error.strerror or error}.") from error


def interval(value: float, low: float, high: float) -> str:
    """A figure with its interval as text."""
    if math.isnan(value):
        return "–"
    return f"{value:.3g}" if math.isnan(low) else f"{value:.3g} [{low:.3g}, {high:.3g}]"


def report_table(report: Report) -> Table:
    """Figures in rows; in columns the set, each level, and the numbers of turns."""
    table = Table(title=f"{report.name}, select {report.select}", title_justify="left")
    table.add_column("figure", no_wrap=True)
    table.add_column("over")
    table.add_column("samples", justify="right")
    table.add_column("all tasks", no_wrap=True)
    levels = {level: {(f.name, f.baseline, f.k): f for f in found} for level, found in report.levels.items()}
    turns = {turn: {(f.name, f.baseline, f.k): f for f in found} for turn, found in report.turns.items()}
    shown = {turn: turns[turn] for turn in milestones(len(turns))} if len(turns) > 1 else {}
    split = levels if len(levels) > 1 else {}
    for level in split:
        table.add_column(f"level {level or '–'}", justify="right")
    for turn in shown:
        table.add_column(f"in {turn}", justify="right")
    for figure in report.overall:
        key = (figure.name, figure.baseline, figure.k)
        parts = [found.get(key) for found in (*split.values(), *shown.values())]
        table.add_row(
            figure.name,
            figure.baseline or "–",
            "1" if figure.k == 1 else f"best of {figure.k}",
            interval(figure.value, figure.low, figure.high),
            *("" if part is None else interval(part.value, math.nan, math.nan) for part in parts),
        )
    return table
