"""``kernelgym export``: stored trajectories as rows for trainers."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelgym_env.cli.options import name_of
from kernelgym_env.cli.output import NEGATIVE, OK, console, print_json
from kernelgym_env.errors import InvalidOptionError, MissingDataError
from kernelgym_env.export import KINDS, Keep, export, write_rows
from kernelgym_env.recipes import recipe, recipe_names
from kernelgym_env.runs import turn_files
from kernelgym_env.store import Store

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "write a run's turns as rows for trainers"
DESCRIPTION = (
    "Write the turns of a run for trainers. sft: the best kept turn of each episode; rft: every kept turn; dpo: the "
    "best kept reply to a prompt and the worst other one; turns: every turn with return, advantage, group and "
    "log-probabilities by a recipe; store: the trajectories themselves, compacted to Parquet."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("trajectories", metavar="RUN", help="the folder of a run or search, or a file of trajectories")
    parser.add_argument("kind", metavar="KIND", choices=(*KINDS, "store"), help=", ".join((*KINDS, "store")))
    parser.add_argument("output", metavar="FILE", help="JSON lines, or Parquet by the end .parquet (needs pyarrow)")
    parser.add_argument("--above", type=float, default=0.0, metavar="X", help="keep scores above X (default: 0)")
    parser.add_argument("--findings", action="store_true", help="keep turns with findings too")
    parser.add_argument("--duplicates", action="store_true", help="keep sources that come again on the same task")
    parser.add_argument(
        "--recipe",
        type=name_of(recipe),
        default="kevin",
        metavar="NAME",
        help=f"whose credit, for turns: {', '.join(recipe_names())} (default: kevin)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write them; without any row the exit code is that of a negative verdict."""
    where = Path(arguments.trajectories).expanduser()
    if not (files := turn_files(where)):
        raise MissingDataError(f"There are no trajectories at {str(where)!r}.")
    if len(files) > 1:
        raise InvalidOptionError(f"{str(where)!r} has several tasks; name one of its folders, e.g. {files[0].parent}.")
    (path,) = files
    try:
        count = _written(Store(path), arguments)
    except OSError as error:
        if isinstance(error, MissingDataError):
            raise
        raise InvalidOptionError(f"{arguments.output!r} cannot be written: {error.strerror or error}.") from error
    if arguments.json:
        print_json({"file": arguments.output, "kind": arguments.kind, "rows": count})
    elif count:
        console().print(f"{count} rows in {arguments.output}", soft_wrap=True)
    else:
        told = f"No turn of {path.name} gives a row of kind {arguments.kind}; nothing was written."
        console().print(told, soft_wrap=True)
    return OK if count else NEGATIVE


def _written(store: Store, arguments: argparse.Namespace) -> int:
    """Number of rows that were written."""
    if arguments.kind == "store":
        return store.to_parquet(arguments.output)
    keep = Keep(arguments.above, findings=arguments.findings, deduplicate=not arguments.duplicates)
    rows = export(store.episodes(), arguments.kind, keep=keep, recipe=arguments.recipe)
    if rows:
        write_rows(arguments.output, rows)
    return len(rows)
