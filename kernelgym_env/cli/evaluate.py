"""``kernelgym eval``: judge one submission."""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from pathlib import Path

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kernelgym_env.cli.options import add_device, add_rules, add_sandbox, sandbox_of
from kernelgym_env.cli.output import FAULT, NEGATIVE, OK, console, print_json, waiting
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.feedback import at_level
from kernelgym_env.evaluation.protocols import BASELINES, Protocol, get_protocol
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.prompts import extract_source
from kernelgym_env.tasks import load_task
from kernelgym_env.tasks.kernelbench.requirements import check_requirements
from kernelgym_env.units import duration

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "run"]

HELP = "judge a submission: build it, check it, time it"
DESCRIPTION = (
    "Build a submission, check its output, time it against eager PyTorch, and print the verdict. It runs in a sandbox, "
    "as far as this machine offers one: see kernelgym doctor."
)
_WIDE = 0.25
_TIMEOUTS = {
    "import": "import and construction of the model",
    "build": "import where it compiles C++ or CUDA",
    "first_call": "the first call, in which just-in-time compilers run",
    "run": "each later call or block of timed calls",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("task", metavar="TASK", help="a task id, a file with a reference, or FILE#ID")
    parser.add_argument(
        "submission", metavar="SUBMISSION", help="a file with the source, or with a reply that holds it; - is stdin"
    )
    add_device(parser, "where to run it (default: a GPU if there is one)")
    add_rules(parser)
    parser.add_argument(
        "--baseline",
        action="append",
        default=[],
        choices=BASELINES,
        help="also hold it against torch.compile, or the reference as a CUDA graph; may be repeated",
    )
    defaults = get_protocol("strict").deadlines
    for name, what in _TIMEOUTS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}-timeout",
            type=float,
            default=None,
            metavar="S",
            help=f"seconds for {what} (strict: {getattr(defaults, f'{name}_s'):g})",
        )
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="CPU threads of each process (default: torch's)"
    )
    add_sandbox(parser)


def run(arguments: argparse.Namespace) -> int:
    """Judge and print."""
    from kernelgym_env.pools.local import LocalPool

    task = load_task(arguments.task)
    check_requirements(task)
    submission = Submission(
        task,
        extract_source(_read(arguments.submission)),
        backend=arguments.backend,
        protocol=_protocol(arguments),
        device=arguments.device,
        library_ops=arguments.library_ops,
    )
    pool = LocalPool(arguments.threads, **sandbox_of(arguments))
    try:
        with waiting(f"{submission.task.id}: building, checking, timing"):
            evaluation = pool.submit(submission).result()
    finally:
        pool.close()
    if arguments.json:
        # with what `kernelgym validate` needs to judge it again
        print_json({**evaluation.to_dict(), "source": submission.source, "library_ops": submission.library_ops})
    else:
        console().print(view(evaluation))
    return OK if evaluation.correct else NEGATIVE if evaluation.valid else FAULT


def _read(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise InvalidOptionError(
            f"The submission {name!r} cannot be read: {error.strerror}. Give a file, or - for stdin."
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidOptionError(
            f"The submission {name!r} is not UTF-8 text: {error.reason} at byte {error.start}."
        ) from error


def _protocol(arguments: argparse.Namespace) -> str | Protocol:
    given = {f"{name}_s": getattr(arguments, f"{name}_timeout") for name in _TIMEOUTS}
    deadlines = {name: seconds for name, seconds in given.items() if seconds is not None}
    if not deadlines and not arguments.baseline:
        return str(arguments.protocol)
    protocol = get_protocol(arguments.protocol)
    return protocol.replace(
        deadlines=dataclasses.replace(protocol.deadlines, **deadlines),
        baselines=tuple(dict.fromkeys((*protocol.baselines, *arguments.baseline))),
    )


def view(evaluation: Evaluation) -> Group:
    """An evaluation for people."""
    colour = "green" if evaluation.correct else "magenta" if evaluation.status is Status.FAULT else "red"
    facts = Table.grid(padding=(0, 2))
    facts.add_row("task", evaluation.task_id)
    facts.add_row("device", _device(evaluation))
    facts.add_row("protocol", evaluation.protocol)
    facts.add_row("status", Text(evaluation.status.value, style=f"bold {colour}"))
    if not math.isnan(evaluation.speedup):
        interval = f"95% interval {evaluation.speedup_low:.3g} to {evaluation.speedup_high:.3g}"
        facts.add_row("speedup", f"{evaluation.speedup:.3g}x over eager PyTorch ({interval})")
        for name, over in (("torch.compile", evaluation.speedup_compile), ("CUDA graph", evaluation.speedup_graph)):
            if not math.isnan(over):
                facts.add_row("", f"{over:.3g}x over the reference by {name}")
        for name, problem in evaluation.provenance.get("baseline_problems", {}).items():
            facts.add_row("", Text(f"baseline {name} does not work: {problem.splitlines()[0]}", style="yellow"))
        if (evaluation.speedup_high - evaluation.speedup_low) / 2 > _WIDE * evaluation.speedup:
            facts.add_row("", Text(_why_wide(evaluation), style="yellow"))
    if not math.isnan(evaluation.error_ratio):
        own = (evaluation.provenance.get("protocol") or {}).get("allclose")
        rule = "for comparison: the protocol's own tolerance decides" if own else "at most 1 passes"
        facts.add_row("error ratio", f"{evaluation.error_ratio:.3g} (greatest error / allowed error; {rule})")
    if evaluation.findings:
        facts.add_row(
            "findings", "\n".join(f"{found.id} ({found.severity}): {found.message}" for found in evaluation.findings)
        )
    parts: list[RenderableType] = [facts, *_times(evaluation), _stages(evaluation)]
    said = evaluation.fault if evaluation.status is Status.FAULT else at_level(evaluation, "profile")
    parts.append(
        Panel(Text(said), title="fault" if evaluation.fault else "feedback", title_align="left", border_style=colour)
    )
    return Group(*parts)


def _why_wide(evaluation: Evaluation) -> str:
    """What to do about an interval that says little."""
    fewer = ", or with fewer threads: --threads 1" if evaluation.device == "cpu" else ""
    return (
        "The interval is wide: other programs may be using the device. Where it reaches further than half of the "
        f"speedup to each side, its lower end counts. Try again when they are done{fewer} "
        "(more in docs/faq.md)."
    )


def _device(evaluation: Evaluation) -> str:
    name = evaluation.provenance.get("hardware", {}).get("name", "")
    return f"{evaluation.device} ({name})" if name else evaluation.device


def _times(evaluation: Evaluation) -> list[Table]:
    measured = {name: timing for name, timing in evaluation.times.items() if timing.n}
    if not measured:
        return []
    table = Table(title="times per call, cold cache", title_justify="left")
    table.add_column("side")
    for column in ("median", "95% interval", "calls"):
        table.add_column(column, justify="right")
    table.add_column("clock")
    for name, timing in measured.items():
        interval = f"{duration(timing.low_us)} – {duration(timing.high_us)}"
        table.add_row(name, duration(timing.median_us), interval, str(timing.n), timing.clock)
    return [table]


def _stages(evaluation: Evaluation) -> Text:
    spent = [f"{name} {seconds:.2f}" for name, seconds in evaluation.stages_s.items() if seconds >= 0.005]
    return Text("seconds by stage: " + (", ".join(spent) or "none"), style="dim")
