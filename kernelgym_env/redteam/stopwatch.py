"""How fast a kernel really is: timed from outside of its process, by a clock that it cannot reach.

A trick with the clock, with the reference or with the harness gains nothing here. Reference and submission run in a
process each. Before each call the caches are overwritten, as the judge does it; then this process says go and waits for
the answer. What an answer takes when nothing is called is subtracted. That is too coarse for a verdict, and good enough
to tell a kernel's own speed from one that is several times greater.

- `true_speedup` -- reference time / submission time of a case.

Run as a program (``python -m kernelgym_env.redteam.stopwatch FOLDER …``), it does what it is told on stdin.
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

from kernelgym_env.evaluation import processes, wire
from kernelgym_env.redteam.cases import RedTeamCase
from kernelgym_env.redteam.naive import clean_environ, load_module

__all__ = ["main", "true_speedup"]

_START_S = 120.0
_STEP_S = 30.0
_WARMUPS = 8
_CALLS = 15
_SWEEP_S = 1.0
_SEED = 42
_FLUSH_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20}

_ERROR_S = 25e-6
"""Error of one time: how unevenly long a process takes to wake up."""

_NOTHING, _FLUSH, _CALL = b"n", b"f", b"c"


class _Ended(Exception):
    """A timed process that did not answer."""


class _Runner:
    """A process that calls a model when it is told."""

    def __init__(self, folder: Path, entry: str, kind: str, threads: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernelgym_env.redteam.stopwatch", str(folder), entry, kind, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=folder,
            env=clean_environ(folder),
            start_new_session=True,
        )

    def ask(self, step: bytes, seconds: float = _STEP_S) -> float:
        """Have one step done; returns the wall seconds until its answer."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        start = time.perf_counter()
        with contextlib.suppress(BrokenPipeError):
            stdin.write(step)
        if not wire.readable(seconds, stdout.fileno()) or os.read(stdout.fileno(), 1) != step:
            raise _Ended
        return time.perf_counter() - start

    def start(self) -> None:
        """Wait until its model is there, and warm."""
        self.ask(_NOTHING, _START_S)
        for _ in range(_WARMUPS):
            self.ask(_CALL, _START_S)

    def close(self) -> None:
        """End it and what it started."""
        processes.kill_descendants(self.process.pid, _SWEEP_S)
        self.process.kill()
        self.process.communicate()


@contextmanager
def _running(folder: Path, entry: str, kind: str, threads: int) -> Iterator[_Runner]:
    runner = _Runner(folder, entry, kind, threads)
    try:
        yield runner
    finally:
        runner.close()


def true_speedup(case: RedTeamCase, kind: str, *, scale: int = 1, threads: int = 0) -> float:
    """The greatest speedup that a case's kernel can have by these times and their error; NaN if one side fails.

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
            theirs, ours = _times((reference, submission))
        return (theirs + _ERROR_S) / max(ours - _ERROR_S, _ERROR_S)
    except _Ended:
        return math.nan
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _times(runners: tuple[_Runner, _Runner]) -> tuple[float, float]:
    """Seconds per cold call of each, taking turns."""
    for runner in runners:
        runner.start()
    waits: dict[tuple[_Runner, bytes], list[float]] = {(r, step): [] for r in runners for step in (_NOTHING, _CALL)}
    for _ in range(_CALLS):
        for runner, step in waits:
            runner.ask(_FLUSH)
            waits[runner, step].append(runner.ask(step))
    typical = {key: statistics.median(seconds) for key, seconds in waits.items()}
    one, two = (max(0.0, typical[runner, _CALL] - typical[runner, _NOTHING]) for runner in runners)
    return one, two


def main() -> None:
    """Construct a model, then do the steps that come on stdin and answer each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("entry")
    parser.add_argument("device", choices=tuple(_FLUSH_BYTES))
    parser.add_argument("threads", type=int)
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a submission prints is no answer
    task = load_module(arguments.folder / "task.py", "task")
    own = arguments.entry == "Model"
    module = task if own else load_module(arguments.folder / "submission.py", "submission")
    torch.manual_seed(_SEED)
    model = getattr(module, arguments.entry)(*task.get_init_inputs()).to(arguments.device)
    torch.manual_seed(_SEED)
    inputs = [value.to(arguments.device) if isinstance(value, torch.Tensor) else value for value in task.get_inputs()]
    flush = torch.empty(_FLUSH_BYTES[arguments.device], dtype=torch.uint8, device=arguments.device)
    with torch.no_grad():
        while step := os.read(0, 1):
            if step == _FLUSH:
                flush.fill_(0)
            elif step == _CALL:
                model(*inputs)
            if arguments.device != "cpu":
                torch.cuda.synchronize()
            os.write(answers, step)


if __name__ == "__main__":
    main()
