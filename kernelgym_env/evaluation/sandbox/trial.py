"""What CUDA can do without on this machine: tried once when a judge starts, since drivers and containers differ.

A worker is forked into the full sandbox, starts CUDA and writes into a buffer of the judge. If it cannot, some of the
sandbox is left out, as little as does the job, and the reports say so.

- `settle` -- the judge's side.
- `answer` -- the worker's side.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from kernelgym_env.evaluation import wire

if TYPE_CHECKING:
    from kernelgym_env.evaluation.workers import Zygote

__all__ = ["answer", "settle"]

_log = logging.getLogger(__name__)
_WAIT_S = 30.0
_REASON = "CUDA does not work with it here"
_MARK = 77

# what to leave out, from nothing to all that has a bearing on CUDA
_STEPS: tuple[tuple[str, ...], ...] = (
    (),
    ("shm",),
    ("proc",),
    ("shm", "proc"),
    ("shm", "proc", "view"),
    ("shm", "proc", "view", "namespaces"),
    ("shm", "proc", "view", "namespaces", "seccomp"),
    ("shm", "proc", "view", "namespaces", "seccomp", "capabilities"),
    ("shm", "proc", "view", "namespaces", "seccomp", "capabilities", "landlock_files"),
)


def settle(zygote: Zygote, device: str) -> None:
    """Find the fullest sandbox in which CUDA works, for all later workers of `zygote`.

    Args:
        zygote: a fork server for CUDA.
        device: e.g. ``"cuda:0"``.
    """
    why = ""
    for waived in _STEPS:
        zygote.warden.waived = dict.fromkeys(waived, _REASON)
        why = _try(zygote, device)
        if not why:
            break
        _log.warning("CUDA fails in a sandbox without %s: %s", ", ".join(waived) or "nothing left out", why)
    else:
        # nothing helped, so it is not the sandbox that is at fault
        zygote.warden.waived = {}


def _try(zygote: Zygote, device: str) -> str:
    """Why a worker could not do its part, ``""`` if it did."""
    from kernelgym_env.evaluation.buffers import Buffer
    from kernelgym_env.evaluation.sandbox.warden import SandboxError
    from kernelgym_env.evaluation.workers import WorkerEnded, WorkerLost

    buffer = Buffer.create(1024, device)
    worker = zygote.fork({}, role="trial")
    try:
        message, fds = buffer.share()
        answer = worker.ask(message, _WAIT_S, fds)
        return str(answer.get("error") or ("" if int(buffer.bytes[0]) == _MARK else "its write did not arrive"))
    except (WorkerEnded, WorkerLost, SandboxError) as error:
        return str(error)
    finally:
        worker.close()
        buffer.close()


def answer(control: socket.socket) -> None:
    """Map the buffer that the judge names, write into it, and say how that went."""
    from kernelgym_env.evaluation.buffers import Buffer

    reader = wire.Reader(control)
    command = wire.recv(reader)
    reply = {"nonce": command["nonce"], "error": ""}
    try:
        fd = reader.fds.pop(0) if reader.fds else -1
        buffer = Buffer.attach(command["size"], command["device"], fd=fd, handle=command["handle"])
        buffer.bytes.fill_(_MARK)
        if buffer.bytes.is_cuda:
            import torch

            torch.cuda.synchronize()
        reply["error"] = "" if int(buffer.bytes[-1]) == _MARK else "what it wrote cannot be read back"
    except Exception as error:
        reply["error"] = f"{type(error).__name__}: {error}"[:500]
    wire.send(control, reply)
