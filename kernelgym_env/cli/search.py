"""``kernelgym search``: many evaluations on a task, spent by a plan, into a folder that can be gone on with."""

from __future__ import annotations

import argparse
import inspect
import math
from pathlib import Path
from typing import Any

from rich.table import Table

from kernelgym_env import devices
from kernelgym_env.cli.options import add_judging, judging_of, kind_of
from kernelgym_env.cli.output import FAULT, NEGATIVE, OK, console, print_json, progress
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.policies.base import check_tasks
from kernelgym_env.policies.choosing import NAMES, make_policy
from kernelgym_env.reports.figures import milestones
from kernelgym_env.search import METHODS, Budget, SearchResult, Trial, run_method
from kernelgym_env.tasks import load_tasks
from kernelgym_env.tasks.kernelbench.requirements import check_requirements

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "spend many evaluations on a task: refinement, beam and others, into a folder"
DESCRIPTION = (
    "Search for a fast kernel of a task with a policy, and record every evaluation with its parent. The same command "
    "goes on with a search that was broken off, or with a greater --evaluations. Exit code 1 if nothing was correct "
    "on a task."
)
_SETTINGS: dict[str, tuple[str, ...]] = {
    "best_of_n": ("n",),
    "refine": ("trajectories", "turns"),
    "beam": ("width", "turns", "keep", "rounds"),
    "stts": ("turns", "keep", "iterations", "chains"),
    "islands": ("count", "generations", "shown", "migrate"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of the search; each task gets a folder in it")
    parser.add_argument("--method", choices=list(METHODS), default="beam", help="how to search (default: beam)")
    parser.add_argument(
        "--policy",
        required=True,
        metavar="NAME",
        help=f"who acts: {', '.join(NAMES)}, template:BACKEND, script:FILE[,FILE…] or MODULE:NAME",
    )
    parser.add_argument(
        "--tasks", action="append", required=True, metavar="SPEC", help="what load_tasks takes; may be repeated"
    )
    parser.add_argument("--limit", type=int, default=None, metavar="N", help="only the first N of them")
    names = sorted({name for settings in _SETTINGS.values() for name in settings})
    for name in names:
        users = ", ".join(method for method, settings in _SETTINGS.items() if name in settings)
        parser.add_argument(f"--{name}", type=int, default=None, metavar="N", help=f"of {users}")
    parser.add_argument("--evaluations", type=int, default=None, metavar="N", help="at most so many a task")
    parser.add_argument("--seconds", type=float, default=None, metavar="S", help="start none after so many, a task")
    parser.add_argument("--at-once", type=int, default=16, metavar="N", help="evaluations side by side (default: 16)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what the policy draws (default: 0)")
    add_judging(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search on each task, and print what was found."""
    tasks = list({task.id: task for spec in arguments.tasks for task in load_tasks(spec)}.values())
    if arguments.limit is not None:
        if arguments.limit < 1:
            raise InvalidOptionError(f"--limit must be at least 1, got {arguments.limit}.")
        tasks = tasks[: arguments.limit]
    settings = _settings(arguments)
    budget = Budget(arguments.evaluations, arguments.seconds)
    options = judging_of(arguments)
    if arguments.pool == "local":
        options["device"] = devices.device_kind("auto") if arguments.device == "auto" else arguments.device
        for task in tasks:
            check_requirements(task)
    policy = make_policy(arguments.policy)
    check_tasks(policy, tasks, kind_of(arguments.device))
    results, faults = [], 0
    for task in tasks:
        with progress(_expected(arguments, settings)) as advance:

            def told(trial: Trial, advance: Any = advance) -> None:
                advance(_line(trial))

            result = run_method(
                arguments.method,
                task,
                policy,
                budget=budget,
                folder=arguments.folder / task.id.replace("/", "-"),
                seed=arguments.seed,
                at_once=arguments.at_once,
                trial_done=told,
                policy_name=arguments.policy,
                **settings,
                **options,
            )
        results.append(result)
        faults += sum(not trial.valid for trial in result.trials)
    if arguments.json:
        print_json({"folder": str(arguments.folder), "results": [result.to_dict() for result in results]})
    else:
        console().print(_table(results))
    if faults:
        return FAULT
    return OK if all(result.best is not None for result in results) else NEGATIVE


def _settings(arguments: argparse.Namespace) -> dict[str, int]:
    """What was given of the method's own arguments.

    Raises:
        InvalidOptionError: for an argument of another method.
    """
    mine = _SETTINGS[arguments.method]
    for method, names in _SETTINGS.items():
        for name in names:
            if name not in mine and getattr(arguments, name) is not None:
                own = ", ".join(f"--{one}" for one in mine)
                raise InvalidOptionError(f"--{name} is an option of {method}; {arguments.method} has {own}.")
    return {name: getattr(arguments, name) for name in mine if getattr(arguments, name) is not None}


def _expected(arguments: argparse.Namespace, settings: dict[str, int]) -> int:
    """How many evaluations a search makes, for the bar."""
    parameters = inspect.signature(METHODS[arguments.method]).parameters
    value = {name: settings.get(name, parameters[name].default) for name in _SETTINGS[arguments.method]}
    whole = {
        "best_of_n": lambda: value["n"],
        "refine": lambda: value["trajectories"] * value["turns"],
        "beam": lambda: value["width"] * value["turns"] * value["rounds"],
        "stts": lambda: (
            value["chains"] * (value["turns"] + (value["iterations"] - 1) * (value["turns"] - value["keep"]))
        ),
        "islands": lambda: value["count"] * value["generations"],
    }[arguments.method]()
    return int(whole) if arguments.evaluations is None else min(int(whole), arguments.evaluations)


def _table(results: list[SearchResult]) -> Table:
    shown = Table(title=f"{results[0].method}, the fastest correct kernel")
    marks = milestones(max(len(result.trials) for result in results))
    for column in ("task", "evaluations", "correct", "speedup", *(f"after {mark}" for mark in marks), "id"):
        shown.add_column(column, overflow="fold")
    for result in results:
        best, curve = result.best, result.curve
        after = [f"{curve[mark - 1]:.3g}" if len(curve) >= mark else "–" for mark in marks]
        found = ("–", *after, "–") if best is None else (f"{best.speedup:.3g}", *after, best.id)
        end = "" if result.complete else ", budget spent"
        shown.add_row(
            result.task_id,
            f"{len(result.trials)}{end}",
            str(sum(trial.status == "correct" for trial in result.trials)),
            *found,
        )
    return shown


def _line(trial: Trial) -> str:
    speed = "" if math.isnan(trial.speedup) else f", {trial.speedup:.3g}x"
    origin = f" from {trial.parent}" if trial.parent else ""
    return f"{trial.id}{origin}: {trial.status or 'stop'}{speed}"
