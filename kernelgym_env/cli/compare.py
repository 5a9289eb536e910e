"""``kernelgym compare``: two runs, or a run beside published figures."""

from __future__ import annotations

import argparse
import math

from rich.table import Table
from rich.text import Text

from kernelgym_env.cli.output import OK, console, print_json
from kernelgym_env.cli.report import add_select, interval, select_of
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.reports.comparing import Beside, Difference, common_tasks, compare_published, compare_runs
from kernelgym_env.reports.published import published, published_names
from kernelgym_env.reports.report import Loaded, load
from kernelgym_env.reports.samples import BASELINES

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "compare two runs, or a run with published figures"
DESCRIPTION = (
    "Tell the figures of two runs on the tasks that both have, with the difference and its 95% interval; or put a run "
    "beside what publications say of themselves, by their rules of selection."
)
_COLOURS = {"better": "green", "worse": "red", "unresolved": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("first", metavar="RUN", help="the folder of a run, or a file of trajectories")
    parser.add_argument("second", nargs="?", metavar="OTHER", help="the run that it is compared with")
    parser.add_argument(
        "--published",
        nargs="?",
        const="all",
        default="",
        metavar="NAME",
        help=f"compare with published figures: all (the default), {', '.join(published_names())}",
    )
    add_select(parser)
    parser.add_argument("--baseline", choices=BASELINES, help="what speedups are over (default: eager)")
    parser.add_argument("--samples", type=int, metavar="K", help="the best of K samples (default: 1)")
    parser.set_defaults(select=None, baseline=None, samples=None)  # so that what was given is known


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    _check(arguments)
    first = load(arguments.first)
    if arguments.published:
        return _published(first, arguments)
    second = load(arguments.second)
    pairs = common_tasks(first.tasks, second.tasks)
    rows = compare_runs(
        first.tasks,
        second.tasks,
        k=arguments.samples,
        baseline=arguments.baseline or "eager",
        select="best" if arguments.select is None else select_of(arguments.select),
    )
    left_out = len({task.task_id for task in (*first.tasks, *second.tasks)}) - len(pairs)
    if arguments.json:
        print_json(
            {
                "first": first.name,
                "second": second.name,
                "tasks": len(pairs),
                "left_out": left_out,
                "figures": [row.to_dict() for row in rows],
            }
        )
        return OK
    out = console()
    out.print(_differences(first.name, second.name, rows))
    out.print(f"On {len(pairs)} common tasks" + (f"; {left_out} are left out." if left_out else "."))
    return OK


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what does not go together.

    Raises:
        InvalidOptionError: with what does not, in words.
    """
    if arguments.samples is not None and arguments.samples < 1:
        raise InvalidOptionError(f"--samples must be at least 1, got {arguments.samples}.")
    if not arguments.published:
        if arguments.second is None:
            raise InvalidOptionError(
                f"Say what {arguments.first!r} is compared with: another run, or published figures by --published."
            )
        return
    if arguments.second is not None:
        raise InvalidOptionError(
            f"{arguments.first!r} is compared either with {arguments.second!r} or with published figures; leave out "
            f"{arguments.second!r} or --published."
        )
    if given := [f"--{name}" for name in ("select", "baseline", "samples") if getattr(arguments, name) is not None]:
        raise InvalidOptionError(
            f"{' and '.join(given)} cannot be given with --published: the run's figures follow each publication's own "
            f"rule, baseline and number of samples."
        )


def _differences(first: str, second: str, rows: list[Difference]) -> Table:
    table = Table()
    for column in ("figure", "over", first, second, "second - first (geomean: second / first)", ""):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row.figure,
            row.baseline or "–",
            interval(row.first, math.nan, math.nan),
            interval(row.second, math.nan, math.nan),
            interval(row.difference, row.low, row.high),
            Text(row.verdict, style=_COLOURS[row.verdict]),
        )
    return table


def _published(first: Loaded, arguments: argparse.Namespace) -> int:
    names = published_names() if arguments.published == "all" else [arguments.published]
    systems = [published(name) for name in names]
    found = {system.name: compare_published(first.tasks, system) for system in systems}
    if arguments.json:
        print_json(
            {
                "run": first.name,
                "facts": first.facts,
                "systems": [
                    {
                        **{name: value for name, value in vars(system).items() if name != "rows"},
                        "figures": [row.to_dict() for row in found[system.name]],
                    }
                    for system in systems
                ],
            }
        )
        return OK
    out = console()
    for system in systems:
        out.print(f"\n{system.title}", style="bold")
        for name in ("source", "evidence", "protocol", "selection"):
            out.print(f"{name}: {getattr(system, name)}", soft_wrap=True)
        if found[system.name]:
            out.print(_beside(first.name, found[system.name]))
        else:
            out.print(
                "The run has no counterpart of these figures: no tasks of KernelBench, other levels of it, or too few "
                "samples a task.",
                soft_wrap=True,
            )
    own = ", ".join(f"{name} {value}" for name, value in first.facts.items())
    out.print(
        f"\n{first.name}: {own}. Published figures were measured by other evaluators on other devices, and often on "
        f"other tasks: a difference is no measurement.",
        soft_wrap=True,
    )
    return OK


def _beside(name: str, rows: list[Beside]) -> Table:
    table = Table()
    for column in ("model", "level", "figure", "over", "samples", "turns", "published", name, "tasks"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row.model,
            "all" if row.level is None else str(row.level),
            row.figure,
            row.baseline or "–",
            "1" if row.k == 1 else f"best of {row.k}",
            row.select if isinstance(row.select, str) else "first" if row.select == 1 else f"first {row.select}",
            f"{row.published:.3g}",
            interval(row.run, row.low, row.high),
            str(row.tasks),
        )
    return table
