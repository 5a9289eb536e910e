"""How fast a kernel really is: timed from outside of its process, by a clock that it cannot reach.

A trick with the clock, with the reference or with the harness gains nothing here. Reference and submission run in a
process each; the time of a call is the slope between two batches of calls on one set of inputs. It is too coarse for a
verdict, and good enough to tell a kernel's own speed from one that is several times greater.

- `true_speedup` -- reference time / submission time of a case.

Run as a program (``python -m kernelgym_env.redteam.stopwatch FILES``), it makes the calls that are asked for on stdin.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kernelgym_env.evaluation import processes, wire
from kernelgym_env.redteam.cases import RedTeamCase
from kernelgym_env.redteam.naive import clean_environ, load_module

__all__ = ["main", "true_speedup"]

_START_S = 120.0
_BATCH_S = 30.0
_LEAST_S = 0.02
_MOST_CALLS = 100_000
_REPEATS = 5
_SWEEP_S = 1.0
_SEED = 42


class _Ended(Exception):
    """A timed process that did not answer."""


class _Runner:
    """A process that calls a model as often as it is told."""

    def __init__(self, folder: Path, entry: str, kind: str, threads: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernelgym_env.redteam.stopwatch", str(folder), entry, kind, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=clean_environ(folder),
            start_new_session=True,
        )
        self._calls = 1

    def _ask(self, calls: int, seconds: float) -> float:
        """Wall seconds of `calls` calls."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        start = time.perf_counter()
        with contextlib.suppress(BrokenPipeError):
            stdin.write(b"%d\n" % calls)
            stdin.flush()
        _await_done(stdout, seconds)
        return time.perf_counter() - start

    def start(self) -> None:
        """Wait until its model is there and warm; choose the size of a batch."""
        self._ask(3, _START_S)
        while self._ask(self._calls, _BATCH_S) < _LEAST_S and self._calls < _MOST_CALLS:
            self._calls *= 2

    def seconds(self) -> float:
        """One estimate of the seconds a call takes."""
        short, long = self._ask(self._calls, _BATCH_S), self._ask(3 * self._calls, 3 * _BATCH_S)
        return (long - short if long > short else long * 2 / 3) / (2 * self._calls)

    def close(self) -> None:
        processes.kill_descendants(self.process.pid, _SWEEP_S)
        self.process.kill()
        self.process.communicate()


def _await_done(stdout: IO[bytes], seconds: float) -> None:
    end = time.monotonic() + seconds
    said = b""
    while not said.endswith(b"done\n"):
        if not wire.readable(end - time.monotonic(), stdout.fileno()):
            raise _Ended
        chunk = os.read(stdout.fileno(), 1 << 16)
        if not chunk:
            raise _Ended
        said = said[-16:] + chunk


@contextmanager
def _running(folder: Path, entry: str, kind: str, threads: int) -> Iterator[_Runner]:
    runner = _Runner(folder, entry, kind, threads)
    try:
        yield runner
    finally:
        runner.close()


def true_speedup(case: RedTeamCase, kind: str, *, scale: int = 1, threads: int = 0) -> float:
    """Median ratio of the reference's time to the submission's; NaN if one of them fails.

    Args:
        case: the case.
        kind: ``cpu`` or ``cuda``.
        scale: what ``SCALE`` is rewritten to.
        threads: CPU threads of torch in each process, 0 for its default.
    """
    folder = Path(tempfile.mkdtemp(prefix="stopwatch-"))
    try:
        for name, text in (("task.py", case.task(scale).source), ("submission.py", case.source)):
            (folder / name).write_text(text, encoding="utf-8")
        with (
            _running(folder, "Model", kind, threads) as reference,
            _running(folder, "ModelNew", kind, threads) as submission,
        ):
            for runner in (reference, submission):
                runner.start()
            return statistics.median(reference.seconds() / submission.seconds() for _ in range(_REPEATS))
    except _Ended:
        return math.nan
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Construct a model, then answer each number on stdin with that many calls and a line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("entry")
    parser.add_argument("device")
    parser.add_argument("threads", type=int)
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a submission prints is no answer
    task = load_module(arguments.folder / "task.py", "task")
    own = arguments.entry == "Model"
    module = task if own else load_module(arguments.folder / "submission.py", "submission")
    torch.manual_seed(_SEED)
    model = getattr(module, arguments.entry)(*task.get_init_inputs()).to(arguments.device)
    torch.manual_seed(_SEED)
    inputs = [value.to(arguments.device) if isinstance(value, torch.Tensor) else value for value in task.get_inputs()]
    with torch.no_grad():
        for line in sys.stdin:
            for _ in range(int(line)):
                model(*inputs)
            if arguments.device != "cpu":
                torch.cuda.synchronize()
            answers.write(b"done\n")


if __name__ == "__main__":
    main()
