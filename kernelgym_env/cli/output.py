"""How commands print.

- `OK`, `NEGATIVE`, `USAGE`, `FAULT`, `INTERRUPTED`, `BROKEN_PIPE` -- exit codes.
- `console`, `errors` -- rich consoles on stdout and stderr.
- `print_json` -- data for machines.
- `waiting` -- a spinner with the elapsed time, on a terminal only.
- `progress` -- a bar, or a line for each thing that is done.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from rich.console import Console

from kernelgym_env.keeping import finite

__all__ = [
    "BROKEN_PIPE",
    "FAULT",
    "INTERRUPTED",
    "NEGATIVE",
    "OK",
    "USAGE",
    "console",
    "errors",
    "print_json",
    "progress",
    "waiting",
]

OK, NEGATIVE, USAGE, FAULT = 0, 1, 2, 3
INTERRUPTED, BROKEN_PIPE = 130, 141
_PIPED_COLUMNS = 160


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def _make(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    # what goes to a file or a pipe is not cut to the width that a terminal would have
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_COLUMNS
    return _Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def console() -> Console:
    """A console on stdout."""
    return _make(stderr=False)


def errors() -> Console:
    """A console on stderr."""
    return _make(stderr=True)


def print_json(data: Any) -> None:
    """Print data as one JSON document; numbers that JSON does not have (NaN, infinity) become null."""
    sys.stdout.write(json.dumps(finite(data), indent=2) + "\n")
    sys.stdout.flush()


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show that something is going on while the block runs; nothing where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=errors(), transient=True) as progress:
        progress.add_task(text, total=None)
        yield


class _Advance(Protocol):
    def __call__(self, text: str) -> None: ...


@contextmanager
def progress(total: int) -> Iterator[_Advance]:
    """A bar on stderr; a line for each step where stderr is not a terminal.

    Args:
        total: number of steps.

    Yields:
        A function to be called after each step, with a text on it.
    """
    if not sys.stderr.isatty():
        done = 0

        def line(text: str) -> None:
            nonlocal done
            done += 1
            sys.stderr.write(f"{done}/{total} {text}\n")
            sys.stderr.flush()

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=errors(), transient=True) as bar:
        task = bar.add_task("", total=total)

        def advance(text: str) -> None:
            bar.update(task, advance=1, description=text)

        yield advance
