"""The client's hold on one judge process."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym_env.evaluation import processes, wire
from kernelgym_env.evaluation.sandbox.options import SandboxOptions

__all__ = ["JudgeFault", "JudgeProcess"]

_START_S = 180.0
_KILL_S = 1.0
_PATIENCE_S = 20.0
_LARGEST = 1 << 28


class JudgeFault(Exception):
    """The judge died, hung, or reported that its infrastructure failed."""


class JudgeProcess:
    """A judge on one device.

    Args:
        device: ``cpu`` or ``cuda:<index>``.
        threads: CPU threads, 0 for torch's default.
        environ: set on top of this process's environment.
        sandbox: how submissions are confined.
    """

    def __init__(
        self, device: str, threads: int, environ: Mapping[str, str], sandbox: SandboxOptions | None = None
    ) -> None:
        sandbox = sandbox or SandboxOptions()
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from kernelgym_env.evaluation.judge import main; main()",
                f"--socket={theirs.fileno()}",
                f"--device={device}",
                f"--threads={threads}",
                f"--sandbox={sandbox.mode}",
                *([f"--memory-gib={sandbox.memory_gib}"] if sandbox.memory_gib else []),
                *([f"--cores={sandbox.cores}"] if sandbox.cores else []),
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd="/",  # Python looks for modules in the working directory, so it must not be one that others write to
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")])),
                # threads that spin after a parallel operation would take cores from what is timed
                "OMP_WAIT_POLICY": "PASSIVE",
                **environ,
            },
            # a Ctrl-C in the terminal is the client's to handle
            start_new_session=True,
        )
        theirs.close()
        self._sock = ours
        self._reader = wire.Reader(ours, limit=_LARGEST)
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._ready = False

    @property
    def pid(self) -> int:
        """Process id of the judge."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Block until the judge can take a request.

        Raises:
            JudgeFault: if it ended or took too long.
        """
        with self._lock:
            if not self._ready:
                self._answer(_START_S)
                self._ready = True

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            JudgeFault: if the judge ended, took longer than `seconds`, or reported a fault.
        """
        self.wait_ready()
        with self._lock:
            number = next(self._ids)
            try:
                wire.send(self._sock, {"id": number, **request})
            except OSError as error:
                raise JudgeFault(f"the judge is gone: {error}{self._tail()}") from None
            answer = self._answer(seconds)
        if answer.get("id") != number:
            raise JudgeFault(f"the judge answered request {answer.get('id')} instead of {number}")
        if "fault" in answer:
            raise JudgeFault(str(answer["fault"]))
        return answer

    def _answer(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        try:
            while True:
                if not wire.readable(end - time.monotonic(), self._sock.fileno()):
                    raise JudgeFault(f"the judge did not answer within {seconds:.0f} s{self._tail()}")
                if (message := self._reader.feed()) is not None:
                    return message
        except (wire.WireError, OSError, ValueError) as error:
            raise JudgeFault(f"the judge ended: {error}{self._tail()}") from None

    def _tail(self) -> str:
        if self._log.closed:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4000))
        text = self._log.read().decode("utf-8", "replace").strip()
        return f"\n{text}" if text else ""

    def close(self) -> None:
        """End the judge and everything below it. May be called twice, and from another thread than `ask`."""
        if self._process.poll() is None:
            # closing the socket lets it clean up its folders; the kill is for one that is stuck
            _shut_down(self._sock)
            try:
                self._process.wait(timeout=_PATIENCE_S)
            except subprocess.TimeoutExpired:
                processes.kill_descendants(self._process.pid, _KILL_S)
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
        self._sock.close()
        self._log.close()


def _shut_down(sock: socket.socket) -> None:
    """Shut a socket down in both directions; one that is already closed is fine."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
