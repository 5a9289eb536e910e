"""Audits of many tasks, each in a process of its own.

- `Auditor` -- asks `kernelgym_env.audit.server`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any

from kernelgym_env import devices
from kernelgym_env._version import __version__
from kernelgym_env.errors import InvalidOptionError, unknown_name
from kernelgym_env.evaluation.protocols import Protocol, get_protocol
from kernelgym_env.tasks.flaws import MISSING
from kernelgym_env.tasks.kernelbench.requirements import missing
from kernelgym_env.tasks.model import Task

__all__ = ["BACKENDS", "DEFAULT_PROTOCOLS", "Auditor", "check_backend"]

DEFAULT_PROTOCOLS = ("strict", "kernelbench")
"""The protocol of this package, and the one that published results are judged by."""

BACKENDS = ("inductor", "aot_eager")
"""Backends of `torch.compile`: its own, and one that traces and generates no code, which takes a second."""

_SHARE_OF_MEMORY = 0.75
_GIB = 2**30


def check_backend(backend: str) -> str:
    """Return a backend that an audit may compile with, ``""`` for none.

    Raises:
        UnknownNameError: for another name.
    """
    if backend not in ("", *BACKENDS):
        raise unknown_name("backend of torch.compile:", backend, BACKENDS)
    return backend


class Auditor:
    """Finds out the facts of tasks.

    A task that hangs, dies or fills the memory ends its own process and becomes a record that says so. To be closed, or
    used with ``with``.

    Args:
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<index>``.
        protocols: names, or `Protocol`s; each is audited.
        elements: shrink each task to so many elements with `kernelgym_env.tasks.shapes.small`; 0 leaves its size.
        deadline_s: seconds for a task, all protocols together.
        memory_gib: resident memory of the host that a task may take; None takes three quarters of what there is.
        threads: CPU threads, 0 for torch's default.
        backend: of `torch.compile`, e.g. ``inductor``, to see whether references work with it too, which takes many
            times as long; ``""`` leaves that out.

    Raises:
        UnknownNameError: for an unknown protocol.
        InvalidOptionError: for a value outside its range, or a GPU that is not there.
    """

    def __init__(
        self,
        device: str = "auto",
        *,
        protocols: Sequence[str | Protocol] = DEFAULT_PROTOCOLS,
        elements: int = 0,
        deadline_s: float = 300.0,
        memory_gib: float | None = None,
        threads: int = 0,
        backend: str = "",
    ) -> None:
        for name, value in (("elements", elements), ("threads", threads)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidOptionError(f"{name} of an audit must be an integer of at least 0, got {value!r}.")
        if memory_gib is None:
            memory_gib = _SHARE_OF_MEMORY * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB
        for name, number in (("deadline_s", deadline_s), ("memory_gib", memory_gib)):
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < float("inf"):
                raise InvalidOptionError(f"{name} of an audit must be a finite number above 0, got {number!r}.")
        self.protocols = [get_protocol(protocol) for protocol in protocols]
        if not self.protocols:
            raise InvalidOptionError("An audit needs at least one protocol, e.g. 'strict'.")
        resolved = devices.resolve_device(device)
        self.device = "cuda:0" if resolved == "cuda" else resolved
        self.kind = self.device.partition(":")[0]
        self.elements = elements
        self.deadline_s = deadline_s
        self.memory_gib = memory_gib
        self.threads = threads
        self.backend = check_backend(backend)
        self._server: subprocess.Popen[bytes] | None = None
        self._answers: IO[bytes] | None = None

    @property
    def scale(self) -> str:
        """``shipped``, or ``small:<elements>``."""
        return f"small:{self.elements}" if self.elements else "shipped"

    def audit(self, task: Task) -> dict[str, Any]:
        """The record of a task.

        Args:
            task: any; it is sized for the device here.

        Returns:
            Plain data: ``hash`` of the task as it was given, ``kind`` and ``device``, ``scale``, ``torch`` and
            ``package`` (versions), ``sizes`` (constants that were rewritten to shrink it), and ``protocols``, by name
            the facts of `kernelgym_env.audit.facts.measure`; also with ``state`` ``timeout``, ``memory`` or ``died``,
            ``large`` for a task that cannot be shrunk as far, or ``missing`` for one that needs a library or weights
            which are not on this machine, and ``why``.
        """
        sized = task.for_device(self.kind)
        job = {
            "task": sized.to_dict(),
            "protocols": [protocol.to_dict() for protocol in self.protocols],
            "device": self.device,
            "elements": self.elements,
            "threads": self.threads,
            "backend": self.backend,
            "deadline_s": self.deadline_s,
            "memory_gib": self.memory_gib,
        }
        lacking = missing(sized)
        answer = {"state": MISSING, "why": lacking} if lacking else self._ask(job)
        record = {"hash": sized.hash, "kind": self.kind, "scale": self.scale, "package": __version__}
        if "protocols" not in answer:
            answer = {"sizes": {}, "protocols": {protocol.name: dict(answer) for protocol in self.protocols}}
        return {**record, **answer}

    def close(self) -> None:
        """End the server and whatever it audits."""
        if self._server is None:
            return
        assert self._server.stdin is not None and self._answers is not None
        self._server.stdin.close()
        self._answers.close()
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server = None

    def __enter__(self) -> Auditor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        if self._server is None:
            self._start()
        assert self._server is not None and self._server.stdin is not None and self._answers is not None
        line = b""
        try:
            self._server.stdin.write(json.dumps(job).encode() + b"\n")
            self._server.stdin.flush()
            line = self._answers.readline()
        except BrokenPipeError:
            pass  # told below
        if not line:
            self.close()
            return {"state": "died", "why": "the process that audits ended"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> None:
        reading, writing = os.pipe()
        try:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "kernelgym_env.audit.server", str(writing)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # what references print
                pass_fds=(writing,),
                start_new_session=True,  # an interrupt from the keyboard is for the caller, who closes
            )
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._answers = open(reading, "rb")  # noqa: SIM115 -- closed in `close`
