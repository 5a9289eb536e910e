"""Entering the sandbox for a look, without torch and without a judge.

- `look` -- what would be in force around a submission, started by this process.
- `main` -- does it in a process of its own, which cannot leave again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernelgym_env import settings
from kernelgym_env.evaluation.sandbox.enter import Refusal, enter
from kernelgym_env.evaluation.sandbox.namespaces import enter_pids
from kernelgym_env.evaluation.sandbox.options import SandboxOptions
from kernelgym_env.evaluation.sandbox.plan import LAYERS
from kernelgym_env.evaluation.sandbox.readable import private_places, survey
from kernelgym_env.evaluation.sandbox.warden import Warden

__all__ = ["look", "main"]

_WAIT_S = 20


def look(kind: str = "cpu") -> tuple[dict[str, str], float]:
    """Enter it in a process of its own.

    Args:
        kind: ``"cpu"`` or ``"cuda"``; CUDA itself is not started.

    Returns:
        The state of each layer, and the seconds that entering took.
    """
    code = "from kernelgym_env.evaluation.sandbox.probe import main; main()"
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, kind],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_WAIT_S,
            check=True,
            cwd=os.sep,
            env={**os.environ, "PYTHONPATH": path},
        )
        answer = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        why = (error.stderr.decode(errors="replace").strip().splitlines() or [f"code {error.returncode}"])[-1]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = str(error)
    else:
        return answer["report"], answer["seconds"]
    return dict.fromkeys(LAYERS, f"off: the look itself failed: {why}"), 0.0


def main() -> None:
    """Print what is in force, as JSON."""
    with tempfile.TemporaryDirectory(prefix="look-", dir=settings.runtime_dir()) as name:
        folder = Path(name) / "job"
        (folder / "tmp").mkdir(parents=True, mode=0o700)
        warden = Warden(SandboxOptions(), sys.argv[1], Path(name))
        cell = warden.cell(folder)
        readable = survey(private_places(), os.environ)
        reading, writing = os.pipe()
        pids = "off: CUDA shares memory only between processes that see each other"
        if sys.argv[1] == "cpu":
            pids = enter_pids()
        child = os.fork()
        if child == 0:
            start = time.perf_counter()
            try:
                report = enter(cell.plan, readable, pids=pids)
            except Refusal as refusal:
                report = dict.fromkeys(LAYERS, f"off: {refusal}")
            seconds = time.perf_counter() - start
            os.write(writing, json.dumps({"report": report, "seconds": seconds}).encode())
            os._exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            print(pipe.read())
        os.waitpid(child, 0)
        cell.close()
