"""``kernelgym run``: a policy on a set of tasks, into a folder that can be gone on with."""

from __future__ import annotations

import argparse
import math
import sys

from kernelgym_env import devices
from kernelgym_env.cli.options import add_judging, judging_of, kind_of
from kernelgym_env.cli.output import FAULT, OK, console, print_json, progress
from kernelgym_env.cli.report import report_table
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.policies.base import check_tasks
from kernelgym_env.policies.choosing import NAMES, make_policy
from kernelgym_env.reports.report import load, make_report
from kernelgym_env.runs import Plan, Run, play
from kernelgym_env.store import TurnRecord
from kernelgym_env.tasks import load_tasks
from kernelgym_env.tasks.kernelbench.requirements import check_requirements
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.selection import select

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "play a policy on a set of tasks, into a folder"
DESCRIPTION = (
    "Play episodes of a policy on a set of tasks and record every turn in a folder. The same command goes on with a "
    "run that was broken off, however it was: a recorded turn is neither lost nor played again. Ctrl-C records the "
    "turns in flight first."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="FOLDER", help="of the run; made if it is not there")
    parser.add_argument(
        "--policy",
        required=True,
        metavar="NAME",
        help=f"who acts: {', '.join(NAMES)}, template:BACKEND, script:FILE[,FILE…] (the replies of the turns), or "
        "MODULE:NAME",
    )
    parser.add_argument(
        "--tasks",
        action="append",
        required=True,
        metavar="SPEC",
        help="a task id, a suite or set, a file or a folder; may be repeated",
    )
    parser.add_argument("--level", type=int, action="append", default=[], metavar="N", help="only tasks of this level")
    parser.add_argument("--limit", type=int, default=None, metavar="N", help="only the first N of them")
    parser.add_argument("--turns", type=int, default=4, metavar="N", help="turns of an episode (default: 4)")
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="episodes a task (default: 1)")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="episodes side by side (default: 1)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what the policy draws (default: 0)")
    add_judging(parser)


def run(arguments: argparse.Namespace) -> int:
    """Play what is left, and print the figures."""
    if arguments.at_once < 1:
        raise InvalidOptionError(f"--at-once must be at least 1, got {arguments.at_once}.")
    tasks = _tasks(arguments)
    policy = make_policy(arguments.policy)
    check_tasks(policy, tasks, kind_of(arguments.device))
    options = judging_of(arguments)
    if arguments.pool == "local":
        if arguments.device == "auto":  # a run that goes on where the GPU is missing must not go on with the CPU
            options["device"] = devices.device_kind("auto")
        for task in tasks:
            check_requirements(task)
    wanted = Plan.of(
        arguments.policy,
        tasks,
        turns=arguments.turns,
        samples=arguments.samples,
        options=options,
        seed=arguments.seed,
    )
    folder = Run(arguments.folder)
    plan = folder.start(wanted)
    left = sum(plan.turns - len(slot.played) for slot in folder.left(plan))
    with progress(left) as advance:

        def told(record: TurnRecord) -> None:
            advance(_line(record))

        faults = play(
            folder, plan, tasks, policy, at_once=arguments.at_once, turn_done=told, interrupted=_tell_of_the_wait
        )
    report = make_report(load(folder.folder))
    if arguments.json:
        print_json({"folder": str(folder.folder), "faults": faults, **report.to_dict()})
    else:
        console().print(report_table(report))
        for note in report.notes:
            console().print(note, soft_wrap=True)
    return FAULT if faults else OK


def _tasks(arguments: argparse.Namespace) -> list[Task]:
    found = {task.id: task for spec in arguments.tasks for task in load_tasks(spec)}
    tasks = select(list(found.values()), levels=arguments.level)
    if arguments.limit is not None:
        if arguments.limit < 1:
            raise InvalidOptionError(f"--limit must be at least 1, got {arguments.limit}.")
        tasks = tasks[: arguments.limit]
    if not tasks:
        raise InvalidOptionError(f"No task of {', '.join(arguments.tasks)} has the level {arguments.level}.")
    return tasks


def _tell_of_the_wait() -> None:
    sys.stderr.write("kernelgym: the turns in flight are judged and recorded first\n")
    sys.stderr.flush()


def _line(record: TurnRecord) -> str:
    status = record.evaluation.get("status") or "stop"
    speedup = record.evaluation.get("speedup", math.nan)
    told = "" if speedup is None or math.isnan(speedup) else f", {speedup:.3g}x"
    return f"{record.episode_id} turn {record.turn}: {status}{told}"
