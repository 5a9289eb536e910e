"""Compiling Triton kernels in several processes at once.

- `warm` -- compile rendered sources for a task into Triton's cache, from where this process then takes them.

Triton compiles a kernel when it is first called, for the arguments of that call, and keeps the result on disk. Here
other processes make these calls.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["warm"]

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 900.0

_CHILD = """
import json, sys
from kernelgym_env.tasks.model import Task
from kernelgym_env.tuning.running import Problem, build
import torch
job = json.load(sys.stdin)
for reference, sources in job["sources"].items():
    problem = Problem(Task("Warm/Task", reference), job["device"], quick=True)
    for source in sources:
        built = build(source)
        try:
            if built.module is not None:
                with torch.no_grad():
                    problem.model(built.module)(*problem.inputs)
        except Exception:
            pass
"""


def warm(pairs: Sequence[tuple[str, str]], device: str, workers: int) -> None:
    """Make the first call of each source, spread over processes.

    A process that fails leaves its share to be compiled later; nothing depends on it.

    Args:
        pairs: a reference and a source for it.
        device: of torch, a GPU.
        workers: processes; each has a context of its own on the device.
    """
    if device.partition(":")[0] != "cuda" or workers < 2 or len(pairs) < 4:
        return
    # a source goes to one process with all its references, whose sizes mostly need the same kernel
    place_of = {source: place for place, source in enumerate(dict.fromkeys(source for _, source in pairs))}
    count = min(workers, len(place_of))
    shares: list[dict[str, list[str]]] = [{} for _ in range(count)]
    for reference, source in pairs:
        shares[place_of[source] % count].setdefault(reference, []).append(source)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    running = []
    for share in shares:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        running.append((child, json.dumps({"sources": share, "device": device})))
    try:
        for child, job in running:
            assert child.stdin is not None
            child.stdin.write(job)
            child.stdin.close()
        for child, _ in running:
            child.wait(timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        _LOG.warning("Compiling ahead ended early: %s", error)
    finally:
        for child, _ in running:
            child.kill()
            child.wait()
