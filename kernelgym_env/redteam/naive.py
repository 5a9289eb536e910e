"""A deliberately naive evaluator, for contrast: it shows that a hack is one.

It does what a simple benchmark does. Reference and submission live in one process, one after the other, from one known
seed; the outputs are compared by ``allclose`` at 1e-2; each is timed by the clock of that process on one set of
inputs, whose outputs nobody looks at. What that process prints last is the result.

- `run_naive` -- one case in a throw-away process with a time limit; returns a `Naive`.
- `Naive` -- what it says.
- `clean_environ`, `load_module` -- for processes of this kind.

Run as a program (``python -m kernelgym_env.redteam.naive FOLDER``), it starts a second one like it that does the work,
and ends everything that one leaves behind.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym_env.evaluation import processes
from kernelgym_env.redteam.cases import RedTeamCase

__all__ = ["Naive", "clean_environ", "load_module", "main", "run_naive"]

_LIMIT_S = 60.0
_SLACK_S = 10.0
_SWEEP_S = 2.0
_SUBREAPER = 36
_SEED, _FIRST_INPUT_SEED = 42, 1000
_TRIALS, _WARMUPS = 3, 3
_CALLS = {"cpu": 5, "cuda": 50}
_TOLERANCE = 1e-2
_PASSED = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV")
_ERROR_CHARS = 2000


@dataclass(frozen=True)
class Naive:
    """What the naive evaluator says of a case.

    Attributes:
        credited: whether it found the outputs right.
        speedup: reference time / submission time, 0 where it got no time.
        error: an exception, or how its process ended.
        markers: marker files that appeared.
        leaks: planted secrets that were found.
    """

    credited: bool
    speedup: float = 0.0
    error: str = ""
    markers: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()


def run_naive(
    case: RedTeamCase, kind: str, *, scale: int = 1, environ: Mapping[str, str] | None = None, limit_s: float = _LIMIT_S
) -> Naive:
    """Run one case through the naive evaluator.

    Its process runs a copy of the case in a folder of its own, with a home there and no inherited descriptors. That is
    all: what a submission does elsewhere on this machine, it does.

    Args:
        case: the case.
        kind: ``cpu`` or ``cuda``.
        scale: what ``SCALE`` is rewritten to.
        environ: added to its environment.
        limit_s: seconds after which it is killed.
    """
    folder = Path(tempfile.mkdtemp(prefix="naive-"))
    try:
        for name, text in (("task.py", case.task(scale).source), ("submission.py", case.source)):
            (folder / name).write_text(text, encoding="utf-8")
        return _supervised(folder, kind, environ or {}, limit_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clean_environ(folder: Path) -> dict[str, str]:
    """An environment with little in it; home and temporary files go to `folder`."""
    kept = {name: value for name, value in os.environ.items() if name in _PASSED}
    root = str(Path(__file__).resolve().parents[2])
    own = {"HOME": str(folder), "TMPDIR": str(folder)}
    return {**kept, **own, "PYTHONPATH": root, "PYTHONDONTWRITEBYTECODE": "1"}


def load_module(path: Path, name: str) -> Any:
    """Import a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _supervised(folder: Path, kind: str, environ: Mapping[str, str], limit_s: float) -> Naive:
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "kernelgym_env.redteam.naive", str(folder), f"--device={kind}", f"--limit={limit_s:g}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={**clean_environ(folder), **environ},
        start_new_session=True,
    )
    try:
        printed, _ = supervisor.communicate(timeout=limit_s + _SLACK_S)
    except subprocess.TimeoutExpired:
        processes.kill_descendants(supervisor.pid, _SWEEP_S)
        supervisor.kill()
        supervisor.communicate()
        return Naive(False, error="its process did not end")
    return _last_result(printed.decode("utf-8", "replace"))


def _last_result(printed: str) -> Naive:
    """The last line that is a JSON object, whoever printed it."""
    for line in reversed(printed.splitlines()):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            told = said.get("speedup")
            speedup = float(told) if isinstance(told, (int, float)) and not isinstance(told, bool) else 0.0
            return Naive(bool(said.get("correct")), speedup, str(said.get("error") or ""))
    return Naive(False, error="no result")


def main() -> None:
    """Evaluate the case in a folder and print the result, or supervise a process that does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=tuple(_CALLS), required=True)
    parser.add_argument("--limit", type=float, default=_LIMIT_S)
    parser.add_argument("--inner", action="store_true")
    arguments = parser.parse_args()
    if arguments.inner:
        sys.stdout.write(json.dumps(_evaluate(arguments.folder, arguments.device)) + "\n")
    else:
        _supervise(arguments.limit)


def _supervise(limit_s: float) -> None:
    """Run the evaluator; what it starts is adopted by this process and ends with it."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile() as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "kernelgym_env.redteam.naive", *sys.argv[1:], "--inner"],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        ended = ""
        try:
            code = worker.wait(limit_s)
            ended = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"no result within {limit_s:g} s"
        processes.kill_descendants(os.getpid(), _SWEEP_S)
        output.seek(0)
        printed = output.read()[-1 << 20 :].decode("utf-8", "replace")
    if ended:
        printed += "\n" + json.dumps({"correct": False, "error": ended})
    sys.stdout.write(printed + "\n")


def _evaluate(folder: Path, device: str) -> dict[str, Any]:
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device)
        if isinstance(value, (list, tuple)):
            return type(value)(moved(item) for item in value)
        return {key: moved(item) for key, item in value.items()} if isinstance(value, dict) else value

    def tensors(value: Any) -> list[Any]:
        if isinstance(value, torch.Tensor):
            return [value]
        items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        return [tensor for item in items for tensor in tensors(item)]

    def agree(wanted: Any, got: Any) -> bool:
        one, two = tensors(wanted), tensors(got)
        # the outputs are fetched from the device first, as many evaluators do
        return len(one) == len(two) and all(
            a.shape == b.shape and torch.allclose(a.cpu(), b.cpu(), atol=_TOLERANCE, rtol=_TOLERANCE)
            for a, b in zip(one, two, strict=True)
        )

    def mean_us(model: Any, inputs: list[Any]) -> float:
        times = []
        for _ in range(_WARMUPS):
            model(*inputs)
        for _ in range(_CALLS[device]):
            if device == "cuda":
                start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start_event.record()
                model(*inputs)
                end_event.record()
                torch.cuda.synchronize()
                times.append(start_event.elapsed_time(end_event) * 1e3)
            else:
                start = time.perf_counter()
                model(*inputs)
                times.append((time.perf_counter() - start) * 1e6)
        return sum(times) / len(times)

    result: dict[str, Any] = {"correct": False}
    try:
        task, submission = load_module(folder / "task.py", "task"), load_module(folder / "submission.py", "submission")
        arguments = task.get_init_inputs()
        torch.manual_seed(_SEED)
        reference = task.Model(*arguments).to(device)
        torch.manual_seed(_SEED)
        candidate = submission.ModelNew(*arguments).to(device)
        correct = True
        with torch.no_grad():
            for trial in range(_TRIALS):
                torch.manual_seed(_FIRST_INPUT_SEED + trial)
                inputs = moved(task.get_inputs())
                expected = reference(*inputs)
                output = candidate(*inputs)
                correct = correct and agree(expected, output)
            theirs = mean_us(reference, inputs)
            ours = mean_us(candidate, inputs)
        result.update(correct=bool(correct), speedup=theirs / max(ours, 1e-3))
    except BaseException as error:  # a submission may end in any way
        result["error"] = f"{type(error).__name__}: {error}"[:_ERROR_CHARS]
    return result


if __name__ == "__main__":
    main()
