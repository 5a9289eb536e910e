"""The process that audits tasks: it imports torch once and forks a child for each task.

One JSON object a line comes in on stdin and one a line goes out on the descriptor named by the first argument. The
server itself never uses a device nor a thread, so that its children can; whatever a task does to its process, hangs or
fills the memory, ends with that child.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import torch

from kernelgym_env.audit.facts import measure
from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.evaluation.protocols import Protocol
from kernelgym_env.tasks.model import Task
from kernelgym_env.tasks.shapes import small

__all__ = ["audit", "main", "watch"]

_LOOK_S = 0.05
_CHUNK = 1 << 16
_REASON_CHARS = 300
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
_COMPILERS = "TORCHINDUCTOR_COMPILE_THREADS"  # one: no pool of processes that would outlive the child


def audit(job: Mapping[str, Any]) -> dict[str, Any]:
    """Audit one task in this process.

    Args:
        job: ``task``, a `Task` as plain data, sized for the device; ``protocols``, as plain data; ``device``;
            ``elements``, to which the task is to be shrunk, 0 for its own size; ``threads``, 0 for torch's default;
            ``backend``, of `torch.compile`, ``""`` to leave that out.

    Returns:
        ``device``, its name; ``torch``, its version; ``sizes``, the constants that were rewritten; ``protocols``, by
        name the facts of `measure`.
    """
    if job["threads"]:
        torch.set_num_threads(job["threads"])
    task, elements = Task.from_dict(job["task"]), job["elements"]
    protocols = [Protocol.from_dict(data) for data in job["protocols"]]
    name = torch.cuda.get_device_name(job["device"]) if job["device"] != "cpu" else "CPU"
    found: dict[str, Any] = {"device": name, "torch": torch.__version__.partition("+")[0], "sizes": {}}
    if elements:
        try:
            shrunk = small(task, elements=elements)
        except InvalidOptionError as error:
            # one that only cannot be made as small has no flaw
            large = "cannot be made smaller" in str(error)
            facts = {"state": "large" if large else "fails", "why": str(error)}
            return {**found, "protocols": {protocol.name: facts for protocol in protocols}}
        before = task.constants()
        found["sizes"] = {name: value for name, value in shrunk.constants().items() if value != before[name]}
        task = shrunk
    measured = {p.name: measure(task, p, job["device"], backend=job["backend"]) for p in protocols}
    return {**found, "protocols": measured}


def watch(pid: int, answer: int, stdin: int, *, deadline_s: float, memory_bytes: int) -> tuple[bytes, str]:
    """Wait for a child's answer, and end it with all of its group.

    Args:
        pid: the child, leader of its group.
        answer: where it writes.
        stdin: ends when whoever asked is gone.
        deadline_s: seconds after which it is killed.
        memory_bytes: resident memory of the host at which it is killed.

    Returns:
        What it wrote, and why it was killed: ``timeout``, ``memory``, ``gone``, or ``""``.
    """
    data, why, end = b"", "", time.monotonic() + deadline_s
    while not why:
        ready, _, _ = select.select([answer, stdin], [], [], _LOOK_S)
        if answer in ready:
            part = os.read(answer, _CHUNK)
            if not part:
                break
            data += part
        elif stdin in ready:
            why = "gone"  # nothing is sent while an answer is due, so this is the end
        elif time.monotonic() > end:
            why = "timeout"
        elif _resident(pid) > memory_bytes:
            why = "memory"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return data, why


def main(descriptor: int) -> int:
    """Serve until stdin ends."""
    # what compilers keep is shared by all children, and no child may live to remove it
    with tempfile.TemporaryDirectory(prefix="kernelgym-audit-", ignore_cleanup_errors=True) as folder:
        os.environ.update({name: f"{folder}/{name.lower()}" for name in _CACHES})
        os.environ[_COMPILERS] = "1"
        return _serve(descriptor)


def _serve(descriptor: int) -> int:
    pending = b""
    while part := os.read(0, _CHUNK):
        pending += part
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            result = _in_child(json.loads(line))
            if result is None:
                return 0
            os.write(descriptor, json.dumps(result).encode() + b"\n")
    return 0


def _in_child(job: Mapping[str, Any]) -> dict[str, Any] | None:
    """The facts, or ``{"state": …, "why": …}`` where the child was killed or died; None if nobody waits for them."""
    if job["backend"]:
        # seconds that children need not spend; neither starts a thread
        import torch._dynamo
        import torch._inductor.compile_fx  # noqa: F401
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            os.close(reading)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what references say
            result = _result(job)
            with open(writing, "wb") as file:
                file.write(json.dumps(result).encode())
            code = 0
        finally:
            os._exit(code)  # the caller's clean-up is not for a child
    os.close(writing)
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, pid)  # the child does it too; whoever comes first
    try:
        data, why = watch(pid, reading, 0, deadline_s=job["deadline_s"], memory_bytes=int(job["memory_gib"] * 2**30))
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if why == "gone":
        return None
    if why:
        told = f"{job['deadline_s']:g} s" if why == "timeout" else f"{job['memory_gib']:.3g} GiB of the host's memory"
        return {"state": why, "why": f"it took more than {told}"}
    try:
        told_by_child: dict[str, Any] = json.loads(data)
    except ValueError:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        return {"state": "died", "why": f"its process ended with {how}"}
    return told_by_child


def _result(job: Mapping[str, Any]) -> dict[str, Any]:
    try:
        result: dict[str, Any] = _plain(audit(job))
        return result
    except Exception as error:  # what no step of the audit expects; the run goes on
        return {"state": "died", "why": f"{type(error).__name__}: {error}"[:_REASON_CHARS]}


def _plain(value: Any) -> Any:
    """Data for JSON, with four digits and without NaN or infinity, which JSON does not have."""
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
