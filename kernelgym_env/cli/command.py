"""The parser of the command line, and what becomes of errors.

- `main` -- parse, run, return the exit code.
- `build_parser` -- the parser with all commands.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from kernelgym_env._version import __version__
from kernelgym_env.cli import (
    audit,
    compare,
    doctor,
    evaluate,
    export,
    redteam,
    report,
    roofline,
    run,
    search,
    show,
    synth,
    tasks,
    validate,
)
from kernelgym_env.cli.output import BROKEN_PIPE, FAULT, INTERRUPTED, USAGE
from kernelgym_env.errors import KernelGymError, NotRecordedError, unknown_name

__all__ = ["build_parser", "main"]

_COMMANDS = {
    "eval": evaluate,
    "tasks": tasks,
    "show": show,
    "audit": audit,
    "roofline": roofline,
    "synth": synth,
    "run": run,
    "search": search,
    "report": report,
    "compare": compare,
    "export": export,
    "redteam": redteam,
    "validate": validate,
    "doctor": doctor,
}
_EPILOG = "exit codes: 0 done, 1 negative verdict, 2 mistake in the call, 3 fault of the infrastructure"


def build_parser() -> argparse.ArgumentParser:
    """The parser; each command sets `run`, a function from its arguments to an exit code."""
    parser = argparse.ArgumentParser(
        prog="kernelgym",
        description="Judge GPU kernels, look at the tasks, and find out what works on this machine.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kernelgym_env {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module in _COMMANDS.items():
        command = commands.add_parser(
            name, help=module.HELP, description=module.DESCRIPTION, epilog=_EPILOG, allow_abbrev=False
        )
        module.add_arguments(command)
        command.add_argument("--json", action="store_true", help="print JSON, and nothing else, on stdout")
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments without the program's name; None takes the process's own.

    Returns:
        0 done, 1 a negative verdict, 2 a mistake in the call, 3 a fault of the infrastructure.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser()
    try:
        if not given:
            parser.print_help(sys.stderr)
            return USAGE
        if not given[0].startswith("-") and given[0] not in _COMMANDS:
            parser.error(str(unknown_name("command", given[0], _COMMANDS)))
        arguments = parser.parse_args(given)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as end:  # argparse, after --help or an error
        return end.code if isinstance(end.code, int) else USAGE
    except NotRecordedError as error:
        sys.stderr.write(f"kernelgym: {error} What was recorded is kept; the same command goes on behind it.\n")
        return FAULT
    except KernelGymError as error:
        sys.stderr.write(f"kernelgym: {error}\n")
        return USAGE
    except KeyboardInterrupt:
        sys.stderr.write("kernelgym: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # the reader has seen enough; the interpreter's own flush at exit must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception:  # a bug of ours, not a mistake in the call
        sys.stderr.write(f"kernelgym: an internal error\n{traceback.format_exc()}")
        return FAULT
