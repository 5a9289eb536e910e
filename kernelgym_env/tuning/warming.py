"""Compiling Triton kernels in several processes at once.

- `warm` -- compile rendered sources for a task into Triton's cache, from where this process then takes them.

Triton compiles a kernel when it is first called, for the arguments of that call, and keeps the result on disk. Here
other processes make these calls.
"""

from __future__ import annotations

import json
import logging
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
jobs = json.load(sys.stdin)
known = {}
for reference, source in jobs["pairs"]:
    if reference not in known:
        known.clear()
        known[reference] = Problem(Task("Warm/Task", reference), jobs["device"], quick=True)
    built = build(source)
    try:
        if built.module is not None:
            with torch.no_grad():
                known[reference].model(built.module)(*known[reference].inputs)
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
    count = min(workers, len(pairs))
    running = []
    for place in range(count):
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        running.append((child, json.dumps({"pairs": pairs[place::count], "device": device})))
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
