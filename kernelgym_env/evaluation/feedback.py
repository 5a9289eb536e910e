"""The text a policy reads after a turn: templated, bounded, never a seed, a hidden shape or a value.

- `FEEDBACK_LEVELS` -- how much it may say.
- `explain` -- the full text for an outcome.
- `without_commands` -- a build's output without the command lines.
- `without_values` -- what a submission says, without the values it may have seen.
- `at_level` -- an evaluation's feedback at a level.
"""

from __future__ import annotations

import math
import re

from kernelgym_env.errors import unknown_name
from kernelgym_env.evaluation.result import Evaluation, Status
from kernelgym_env.limits import MAX_FEEDBACK_CHARS, clip
from kernelgym_env.units import duration

__all__ = ["FEEDBACK_LEVELS", "at_level", "check_level", "explain", "without_commands", "without_values"]

FEEDBACK_LEVELS = ("status", "error", "profile")
"""``status``: the outcome and the speedup. ``error``: also what went wrong. ``profile``: also where time goes."""

_SHOWN_KERNELS, _KERNEL_CHARS = 6, 80

_HEADLINES = {
    Status.FORMAT: "The reply could not be used.",
    Status.COMPILE_ERROR: "The kernel did not compile.",
    Status.RUNTIME_ERROR: "The code raised an exception.",
    Status.TIMEOUT: "The code did not finish in time.",
    Status.CRASH: "The process that ran the code died.",
    Status.WRONG: "The output is wrong.",
    Status.POLICY: "The output is right, but not computed by kernels of your own.",
    Status.INTEGRITY: "The evaluation was tampered with.",
    Status.TASK_INVALID: "This task cannot be judged.",
    Status.FAULT: "The evaluation failed for reasons outside the submission.",
    Status.CORRECT: "The output is correct.",
}

# folders of this machine, but not the path of a URL
_PATHS = re.compile(r"(?<![\w:/.])(?:/[\w.+-]+)+/(?=[\w.+-]+)")

# more places than a message about versions, ratios or percentages needs; hexadecimal ones hold addresses and floats
_DECIMALS = re.compile(r"(\d\.\d)\d{2,}(?:[eE][-+]?\d+)?")
_LONG = re.compile(r"0[xX][0-9a-fA-F]{9,}|\d{10,}")

# what a build tool runs, as it says before it runs it: of no use to a reader who wants to know what is wrong
_COMMANDS = re.compile(
    r"(?m)^(?:(?P<error>Error building extension '[^'\n]*'): )?(?:\[\d+/\d+\] )?"
    r"(?:[\w./+-]*/)?(?:nvcc|hipcc|g\+\+|c\+\+|gcc|cc|clang\+\+)(?:-[\d.]+)? [^\n]* -o [^\n]*\n?"
)

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def check_level(level: str) -> str:
    """Return `level`, or raise `UnknownNameError`."""
    if level not in FEEDBACK_LEVELS:
        raise unknown_name("feedback level", level, FEEDBACK_LEVELS)
    return level


def explain(detail: str, *, output: str = "") -> str:
    """Join what went wrong with what the code printed, without the folders of this machine.

    Args:
        detail: error text; its head and tail survive the bound.
        output: what the code printed; its tail survives.
    """
    detail, output = (without_commands(_printable(text)) for text in (detail, output))
    text = clip(_PATHS.sub("", detail.strip()), MAX_FEEDBACK_CHARS * 5 // 8)
    printed = clip(_PATHS.sub("", output.strip()), MAX_FEEDBACK_CHARS // 4, head=0.3)
    return text + (f"\n\nPrinted by the code:\n{printed}" if printed else "")


def without_values(text: str) -> str:
    """Text of code that had seen inputs, without what may be values or seeds: decimal places and long integers.

    Shapes, sizes and limits stay readable.

    >>> without_values("RuntimeError: x is 0.3912874, seed 8390457823945872, 49152 bytes of shared memory")
    'RuntimeError: x is 0.3…, seed […], 49152 bytes of shared memory'
    """
    return _LONG.sub("[…]", _DECIMALS.sub(r"\1…", text))


def without_commands(text: str) -> str:
    """A build's output without the compilers' command lines, but with all that they said.

    >>> print(without_commands("Error building extension 'a': [1/2] g++ -O3 -c m.cpp -o m.o\\nm.cpp:1: error: no x"))
    Error building extension 'a':
    m.cpp:1: error: no x
    """
    return _COMMANDS.sub(lambda found: f"{found['error']}:\n" if found["error"] else "", text)


def _printable(text: str) -> str:
    """Text that any terminal and file can hold: colours go; lone surrogates and control characters are written out."""
    text = _COLOURS.sub("", text.encode("utf-8", "backslashreplace").decode())
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n").replace("\r", "\n"))


def at_level(evaluation: Evaluation, level: str) -> str:
    """The feedback of an evaluation at a level, at most `MAX_FEEDBACK_CHARS` long.

    >>> print(at_level(Evaluation("a/b", Status.WRONG, feedback="output: 3.00% differ."), "error"))
    wrong: The output is wrong.
    output: 3.00% differ.
    >>> print(at_level(Evaluation("a/b", Status.CORRECT, speedup=1.5, speedup_low=1.4, speedup_high=1.6), "status"))
    correct: The output is correct. Speedup over eager 1.50x (95% interval 1.40 to 1.60).
    """
    check_level(level)
    lines = [f"{evaluation.status.value}: {_HEADLINES[evaluation.status]}{_speedup(evaluation)}"]
    if level != "status":
        lines.append(_times(evaluation))
        if level == "profile":
            lines.append(_profile(evaluation))
        lines.append(evaluation.feedback)
    return clip("\n".join(line for line in lines if line), MAX_FEEDBACK_CHARS)


def _speedup(evaluation: Evaluation) -> str:
    if evaluation.status is not Status.CORRECT:
        return ""
    if math.isnan(evaluation.speedup):
        return " Its speed was not measured."
    unsure = ", too wide: its lower end counts" if evaluation.provenance.get("unresolved") else ""
    return (
        f" Speedup over eager {evaluation.speedup:.2f}x "
        f"(95% interval {evaluation.speedup_low:.2f} to {evaluation.speedup_high:.2f}{unsure})."
    )


def _times(evaluation: Evaluation) -> str:
    mine, eager = evaluation.times["candidate"], evaluation.times["eager"]
    if evaluation.status is not Status.CORRECT or math.isnan(mine.median_us):
        return ""
    return f"Your time {duration(mine.median_us)}, eager PyTorch {duration(eager.median_us)} (medians, cold cache)."


def _profile(evaluation: Evaluation) -> str:
    """Where the device's time goes, kernel by kernel; empty where it was not seen."""
    evidence = evaluation.provenance.get("evidence") or {}
    kernels = evidence.get("kernels") or []
    total = sum(kernel["us"] for kernel in kernels)
    if evaluation.status is not Status.CORRECT or not total > 0:
        return ""
    lines = [
        f"Your own kernels take {evaluation.coverage:.0%} of the device's time. Kernels of one call, longest first:"
    ]
    for kernel in kernels[:_SHOWN_KERNELS]:
        whose = {"own": "own", "library": f"from {kernel['file']}"}.get(kernel["whose"], "copying and filling")
        launches = f"{kernel['launches']:g} launch{'' if kernel['launches'] == 1 else 'es'}"
        name = clip(without_values(_printable(kernel["name"])), _KERNEL_CHARS)
        lines.append(f"- {kernel['us'] / total:.0%}, {duration(kernel['us'])}, {launches}, {whose}: {name}")
    if len(kernels) > _SHOWN_KERNELS:
        lines.append(f"- and {len(kernels) - _SHOWN_KERNELS} more")
    return "\n".join(lines)
