"""``kernelgym synth``: compose tasks out of torch's operators."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelgym_env.cli.options import add_device, name_of
from kernelgym_env.cli.output import NEGATIVE, OK, console, errors, print_json, progress
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.protocols import get_protocol, protocol_names
from kernelgym_env.keeping import named, write_whole
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.synth import OPERATORS, generate
from kernelgym_env.tasks.synth.sift import check_band, sift

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "compose new tasks out of torch's operators"
DESCRIPTION = (
    "Compose tasks of one to five operators, none a near-duplicate of a problem of KernelBench, and write them to a "
    "file, which every command and load_tasks take. The same seed gives the same tasks. With --sift only those are "
    "kept that work on this device, in eager mode and compiled, and cannot be won without the work. Exit code 1 if "
    "that leaves none."
)
_BACKENDS = ("inductor", "aot_eager", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("out", type=Path, metavar="FILE", help="where to write them, as .jsonl; a new file")
    parser.add_argument("--force", action="store_true", help="write FILE anew where it exists")
    parser.add_argument("--count", type=int, default=100, metavar="N", help="how many to compose (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which (default: 0)")
    parser.add_argument(
        "--operator",
        action="append",
        default=[],
        metavar="NAME",
        help=f"compose them of these alone; may be repeated: {', '.join(OPERATORS)}",
    )
    parser.add_argument("--sift", action="store_true", help="run the references, and keep the tasks that are fit")
    add_device(parser, "where to run them (default: a GPU if there is one)")
    parser.add_argument(
        "--protocol",
        action="append",
        type=name_of(get_protocol),
        default=[],
        metavar="NAME",
        help=f"how submissions will be judged: {', '.join(protocol_names())}; may be repeated (default: strict)",
    )
    parser.add_argument(
        "--backend", choices=_BACKENDS, default="inductor", help="of torch.compile, with --sift (default: inductor)"
    )
    parser.add_argument(
        "--band-us",
        nargs=2,
        type=float,
        metavar=("LOW", "HIGH"),
        help="shortest and longest call in microseconds, with --sift (default: 1000 100000 on a GPU, 100 100000 on a "
        "CPU)",
    )
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads (default: torch's)")


def run(arguments: argparse.Namespace) -> int:
    """Compose, sift, write."""
    if arguments.out.suffix != ".jsonl":
        raise InvalidOptionError(
            f"FILE must end in .jsonl, so that tasks are read from it, got {str(arguments.out)!r}."
        )
    if not arguments.out.absolute().parent.is_dir():
        raise InvalidOptionError(f"There is no folder {str(arguments.out.absolute().parent)!r} to write tasks to.")
    if arguments.out.exists() and not arguments.force:
        raise InvalidOptionError(f"{str(arguments.out)!r} exists. Name another file, or write it anew with --force.")
    tasks = generate(arguments.count, arguments.seed, operators=arguments.operator or None)
    refused: dict[str, list[str]] = {}
    if arguments.sift:
        kept: list[Task] = []
        for task in _sifted(arguments, tasks, refused):
            kept.append(task)
            _write(arguments.out, kept)
        tasks = kept
    _write(arguments.out, tasks)
    if arguments.json:
        print_json({"path": str(arguments.out), "tasks": [task.id for task in tasks], "refused": refused})
    else:
        counted = Counter(len(task.tags) - 2 for task in tasks)
        told = ", ".join(f"{counted[number]} of {number}" for number in sorted(counted))
        console().print(f"{len(tasks)} tasks are in {arguments.out}; operators: {told or 'none'}.", soft_wrap=True)
        for task_id, reasons in refused.items():
            errors().print(f"{task_id} was left out: {'; '.join(reasons)}", style="dim", soft_wrap=True)
    return OK if tasks else NEGATIVE


def _sifted(arguments: argparse.Namespace, tasks: list[Task], refused: dict[str, list[str]]) -> Iterator[Task]:
    band = None if arguments.band_us is None else check_band(tuple(arguments.band_us))
    backend = "" if arguments.backend == "none" else arguments.backend
    with progress(len(tasks)) as advance:
        for found in sift(
            tasks,
            arguments.device,
            protocols=arguments.protocol or ["strict"],
            band_us=band,
            backend=backend,
            threads=arguments.threads,
        ):
            advance(f"{found.task.id}: {'fit' if found.fit else '; '.join(found.reasons)}")
            if found.fit:
                yield found.task
            else:
                refused[found.task.id] = list(found.reasons)


def _write(path: Path, tasks: Iterable[Task]) -> None:
    try:
        write_whole(named(path), "".join(json.dumps(task.to_dict()) + "\n" for task in tasks), private=False)
    except OSError as error:
        raise InvalidOptionError(f"Tasks cannot be written to {str(path)!r}: {error.strerror}.") from error
