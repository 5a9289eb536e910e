"""``kernelgym show``: a task's reference and prompt."""

from __future__ import annotations

import argparse
import sys

from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from kernelgym_env import devices
from kernelgym_env.cli.options import add_device, kind_of, name_of
from kernelgym_env.cli.output import OK, console, print_json
from kernelgym_env.evaluation.submission import BACKENDS, check_backend
from kernelgym_env.prompts import task_prompt
from kernelgym_env.prompts.task import STYLES
from kernelgym_env.tasks import load_task
from kernelgym_env.tasks.model import Task

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "show a task: reference, sizes, prompt"
DESCRIPTION = (
    "Show what a task asks for: its description, its sizes on a device, and its reference; or its prompt alone."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("task", metavar="TASK", help="a task id, a file with a reference, or FILE#ID")
    add_device(parser, "whose sizes to show (default: a GPU's if there is one)")
    parser.add_argument("--prompt", action="store_true", help="print what a policy is told, and nothing else")
    parser.add_argument(
        "--style", choices=STYLES, default="zero_shot", help="of the prompt (default: zero_shot, an environment's)"
    )
    parser.add_argument(
        "--backend",
        type=name_of(check_backend),
        default="auto",
        metavar="|".join(BACKENDS),
        help="the language that the prompt asks for (default: auto, any)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Show it."""
    kind = kind_of(arguments.device)
    task = load_task(arguments.task).for_device(kind)
    devices.check_backend_kind(arguments.backend, kind)
    prompt = task_prompt(task, kind=kind, backend=arguments.backend, style=arguments.style) if arguments.prompt else ""
    if arguments.json:
        data = {**task.to_dict(), "sizes": task.constants(), "device": kind, "env_id": task.env_id, "hash": task.hash}
        print_json({**data, "prompt": prompt} if arguments.prompt else data)
        return OK
    if arguments.prompt:
        sys.stdout.write(prompt.rstrip("\n") + "\n")
        return OK
    out = console()
    out.print(_facts(task, kind))
    out.print()
    if sys.stdout.isatty():
        out.print(Syntax(task.source, "python", theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        out.print(Text(task.source), soft_wrap=True)
    return OK


def _facts(task: Task, kind: str) -> Table:
    facts = Table.grid(padding=(0, 2))
    sizes = ", ".join(f"{name} = {value}" for name, value in task.constants().items())
    for name, value in (
        ("task", task.id + (f" ({task.title})" if task.title else "")),
        ("asks for", task.description),
        ("level", str(task.level or "")),
        ("tags", ", ".join(task.tags)),
        (f"sizes on {kind}", sizes),
        ("origin", task.origin),
        ("licence", task.licence),
        ("hash", task.hash),
    ):
        if value:
            facts.add_row(name, value)
    return facts
