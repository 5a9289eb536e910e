"""The judge's hold on the processes it runs: the fork server and one handle per forked worker.

- `Zygote` -- starts the fork server, forks workers from it.
- `Worker` -- ask a worker something under a deadline; know how it ended; end it with all it started.
- `WorkerEnded` -- a worker that ended, hung or talked nonsense instead of answering.
- `WorkerLost` -- one that did so before it had read anything of a submission.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym_env import settings
from kernelgym_env.evaluation import processes, wire
from kernelgym_env.evaluation.result import Status
from kernelgym_env.evaluation.sandbox.options import SandboxOptions
from kernelgym_env.evaluation.sandbox.readable import private_places
from kernelgym_env.evaluation.sandbox.warden import Cell, SandboxError, Warden
from kernelgym_env.evaluation.scratch import CACHES, HOME, TMP, remove_tree
from kernelgym_env.limits import clip

__all__ = [
    "Meanwhile",
    "Serve",
    "Worker",
    "WorkerEnded",
    "WorkerLost",
    "Zygote",
    "ZygoteError",
    "ending",
    "judges",
    "read_pids",
]

_KEPT_OUTPUT = 16_384
_KILL_S = 1.0
_PATIENCE_S = 15.0
_START_S = 120.0
_LOOK_S, _FORKED_S = 0.01, 0.5
_ENDING, _ENDED = "ending", 4
_PASSED = ("PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CC", "CXX", "VIRTUAL_ENV")
_PASSED_PREFIXES = ("LC_", "NVIDIA_", "OMP_", "MKL_", "OPENBLAS_", "GOMP_", "KMP_")


Serve = Callable[[object, float], tuple[dict[str, Any], list[int], float]]
"""Takes what a worker asks for and the seconds left; gives the answer, file descriptors and seconds to add."""

Meanwhile = Callable[[], float]
"""What the judge does now and then while it waits for a worker; gives the seconds by which the deadline moves."""


class ZygoteError(Exception):
    """The fork server did not start or is gone: infrastructure, not the submission."""


class WorkerLost(ZygoteError):
    """A worker ended or hung before it had read anything of a submission, whose fault it cannot be."""


class WorkerEnded(Exception):
    """A worker did not answer.

    Attributes:
        kind: ``"timeout"``, ``"exit"`` or ``"garbage"``.
        detail: for people.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail

    @property
    def status(self) -> Status:
        """How the evaluation of a submission ends for which it was the worker."""
        return Status.TIMEOUT if self.kind == "timeout" else Status.CRASH


def _scrubbed() -> dict[str, str]:
    """The environment a candidate may see: no tokens, no home, and not how the judge's own threads wait."""
    kept = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    kept.pop("OMP_WAIT_POLICY", None)
    # the interpreter's own scripts last: torch calls `ninja` by name, also where the environment is not activated
    path = os.pathsep.join([kept.get("PATH", os.defpath), sysconfig.get_path("scripts")])
    # torch's recorder would write into what the submission prints
    return {**kept, "PATH": path, "KINETO_LOG_LEVEL": "99"}


class Zygote:
    """The fork server of one judge.

    Args:
        kind: ``"cpu"`` or ``"cuda"``. On the CPU, Triton runs in its interpreter.
        environ: set on top of the scrubbed environment.
        sandbox: how its workers are confined.

    Attributes:
        warden: makes the plan of each worker's sandbox.

    Raises:
        ZygoteError: if it does not come up within two minutes.
    """

    def __init__(self, kind: str, environ: Mapping[str, str], sandbox: SandboxOptions | None = None) -> None:
        self._jobs = 0
        self._ending: deque[list[int]] = deque(maxlen=_ENDED)
        self._lock = threading.Lock()
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"judge-{os.getpid()}-", dir=settings.runtime_dir()))
        self.warden = Warden(sandbox or SandboxOptions(), kind, self.folder)
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        self._log = open(self.folder / "zygote.log", "wb+")  # noqa: SIM115  (closed in `close`)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from kernelgym_env.evaluation.zygote import main; main()",
                str(theirs.fileno()),
                kind,
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=self.folder,
            env={
                **_scrubbed(),
                "HOME": str(self.folder),
                "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")])),
                "KERNELGYM_IMPORT_ROOT": root,
                "KERNELGYM_SANDBOX": json.dumps({"private": private_places(), "cores": self.warden.cores}),
                "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                **environ,
            },
            start_new_session=True,
        )
        theirs.close()
        self._sock = ours
        self._reader = wire.Reader(ours)
        self.versions: dict[str, str] = {}
        self._ready = False

    def wait_ready(self) -> None:
        """Block until the fork server has loaded everything.

        Raises:
            ZygoteError: if it ended or took too long.
        """
        if self._ready:
            return
        self.versions = self._answer(_START_S)["versions"]
        self._ready = True

    def fork(
        self,
        environ: Mapping[str, str],
        *,
        folder: Path | None = None,
        role: str = "harness",
        reads: Sequence[str] = (),
    ) -> Worker:
        """Fork a worker with a private folder.

        Args:
            environ: set in the worker on top of its private folders.
            folder: an existing folder to go on in (a build's), or None for a new one.
            role: ``"harness"``; ``"trial"`` answers `sandbox.trial` and ``"compile"`` `building.worker` instead.
            reads: private folders that it may read.

        Raises:
            ZygoteError: if the fork server is gone.
        """
        self.wait_ready()
        with self._lock:
            self._jobs += 1
            job = self._jobs
            fresh = folder is None
            if folder is None:
                folder = Path(tempfile.mkdtemp(prefix=f"job-{job}-", dir=self.folder))
                for name in (HOME, TMP):
                    (folder / name).mkdir(mode=0o700)
            cell = self.warden.cell(folder, reads)
            control, theirs = socket.socketpair()
            output, output_write = os.pipe()
            status, status_write = os.pipe()
            request = {
                "op": "fork",
                "job": job,
                "folder": str(folder),
                "environ": {**_private(folder), **environ},
                "sandbox": cell.plan.to_dict(),
                "role": role,
            }
            try:
                wire.send(self._sock, request, [theirs.fileno(), output_write, status_write])
                answer = self._answer(_START_S)
                if "failed" in answer:
                    raise ZygoteError(f"no process could be started: {answer['failed']}")
            except (OSError, ZygoteError) as error:
                cell.close()
                control.close()
                os.close(output)
                os.close(status)
                if fresh:
                    remove_tree(folder)
                if isinstance(error, ZygoteError):
                    raise
                raise ZygoteError(f"the fork server is gone: {error}{self._tail()}") from None
            finally:
                theirs.close()
                os.close(output_write)
                os.close(status_write)
            return Worker(answer["pid"], control, output, status, folder, cell, fresh=fresh)

    def _answer(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while True:
            if not wire.readable(end - time.monotonic(), self._sock.fileno()):
                raise ZygoteError(f"the fork server did not answer within {seconds:.0f} s{self._tail()}")
            try:
                message = self._reader.feed()
            except wire.WireError as error:
                raise ZygoteError(f"the fork server ended{self._how()}: {error}{self._tail()}") from None
            if message is not None:
                return message

    def _how(self) -> str:
        """In words, how the process ended; it may have been killed, and then it has written nothing."""
        try:
            code = self.process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            return ", but its process goes on"
        return f" by {_signal_name(-code)}" if code < 0 else f" with code {code}"

    def _tail(self) -> str:
        self._log.flush()
        text = (self.folder / "zygote.log").read_text(errors="replace").strip()
        return f"\n{clip(text, 4000, head=0.2)}" if text else ""

    def note_ending(self, workers: Sequence[Worker]) -> None:
        """Write down what is about to end, for `ending`: a device's counters go on to name it for a while."""
        pids = [pid for worker in workers if not worker.gone for pid in (worker.pid, *processes.below(worker.pid))]
        self._ending.append(pids)
        with contextlib.suppress(OSError):  # on a full disk they end all the same
            (self.folder / _ENDING).write_text(" ".join(str(pid) for pids in self._ending for pid in pids))

    def close(self) -> None:
        """End the fork server and everything below it; remove its folder."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # at which it kills all it started, and ends
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            processes.kill_descendants(self.process.pid, _KILL_S)
            self.process.kill()
            self.process.wait()
        self._sock.close()
        self._log.close()
        remove_tree(self.folder)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"


def judges() -> list[int]:
    """Process ids of this user's judges on this machine."""
    return [pid for pid, _ in _judge_folders() if Path("/proc", str(pid)).exists()]


def ending() -> list[int]:
    """Process ids of what this user's judges have just ended, or are about to."""
    return [pid for _, folder in _judge_folders() for pid in read_pids(folder / _ENDING)]


def read_pids(path: Path) -> list[int]:
    """The numbers in a file, none if it is not there."""
    try:
        return [int(pid) for pid in path.read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []


def _judge_folders() -> list[tuple[int, Path]]:
    named = ((folder.name.split("-")[1], folder) for folder in settings.runtime_dir().glob("judge-*-*"))
    return [(int(pid), folder) for pid, folder in named if pid.isdigit()]


def _sweep() -> None:
    """Remove the folders of judges that died without cleaning up."""
    for pid, folder in _judge_folders():
        if not Path("/proc", str(pid)).exists():
            remove_tree(folder)


def _private(folder: Path) -> dict[str, str]:
    """Homes and caches below a worker's own folder."""
    home = folder / HOME
    triton, extensions, inductor, cupy, nv = (str(home / name) for name in CACHES)
    return {
        "HOME": str(home),
        "USER": "kernelgym",
        "LOGNAME": "kernelgym",
        "TMPDIR": str(folder / TMP),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "TRITON_CACHE_DIR": triton,
        "TRITON_HOME": str(home),
        "TORCH_EXTENSIONS_DIR": extensions,
        "TORCHINDUCTOR_CACHE_DIR": inductor,
        "CUPY_CACHE_DIR": cupy,
        "CUDA_CACHE_PATH": nv,
    }


class Worker:
    """One forked worker: its control socket, its output, its end.

    Attributes:
        pid: process id of its supervisor.
        folder: its private folder.
        isolation: what was in force around it, by layer; known from its first answer on.
        answered_in_s: wall seconds from when it could begin with the last command that was asked until it had answered.
        serve: answers what the worker asks for while it works on a command; None refuses that.
        launch_us: microseconds of an empty kernel in it, which it told before it had read anything of a submission; NaN
            on a CPU.
    """

    def __init__(
        self,
        pid: int,
        control: socket.socket,
        output: int,
        status: int,
        folder: Path,
        cell: Cell,
        *,
        fresh: bool = True,
    ) -> None:
        self.pid = pid
        self._fresh = fresh  # else a submission has been in its folder, and may hinder its start
        self.folder = folder
        self.isolation: dict[str, str] = {}
        self._cell = cell
        self._control = control
        self._control.setblocking(False)
        self._reader = wire.Reader(control)
        self._status = status
        self._nonce = ""
        self._due = False  # an answer; it may have come early
        self._early: dict[str, Any] | Exception | None = None
        self._halt: processes.Halt | None = None
        self.answered_in_s = 0.0
        self.serve: Serve | None = None
        self.launch_us = math.nan
        self._ended: dict[str, Any] | None = None
        self._head = bytearray()
        self._last = bytearray()
        self._written = 0
        self._drain = threading.Thread(target=self._read_output, args=(output,), daemon=True)
        self._drain.start()

    def _read_output(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            while chunk := os.read(fd, 1 << 16):
                self._written += len(chunk)
                room = _KEPT_OUTPUT // 2 - len(self._head)
                self._head += chunk[:room] if room > 0 else b""
                self._last = (self._last + chunk[max(0, room) :])[-_KEPT_OUTPUT // 2 :]
        os.close(fd)

    @property
    def output(self) -> str:
        """What the worker printed: head and tail."""
        head, tail = bytes(self._head), bytes(self._last)
        cut = self._written - len(head) - len(tail)
        mark = f"\n… [{cut} bytes cut] …\n".encode() if cut > 0 else b""
        return (head + mark + tail).decode("utf-8", "replace")

    def post(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a command; its answer is due from `wait`.

        Raises:
            WorkerEnded: if the worker is gone.
        """
        self._nonce = secrets.token_hex(8)
        self._early = None
        try:
            self._control.settimeout(10.0)
            wire.send(self._control, {**message, "nonce": self._nonce}, fds)
        except OSError as error:
            raise self._end(f"it did not take the command: {error}") from None  # after which the socket is closed
        self._control.setblocking(False)
        self._due = True

    def wait(self, seconds: float, meanwhile: Meanwhile | None = None) -> dict[str, Any]:
        """The answer to the last command.

        Args:
            seconds: until when; of the first answer, counted from when the worker is in its sandbox.
            meanwhile: called now and then.

        Raises:
            WorkerEnded: if none comes within `seconds`, or the worker ended, or it is not an answer.
            WorkerLost: if that happened before it had read anything of a submission.
            SandboxError: if the worker refused to go on without a sandbox.
        """
        early, self._early = self._early, None
        self._due = False
        if isinstance(early, Exception):
            raise early
        return early if early is not None else self._receive(seconds, meanwhile)

    def settle(self, seconds: float, meanwhile: Meanwhile | None = None) -> None:
        """Wait until it has answered what it was last sent, if it was sent something; `wait` gives the answer later.

        Args:
            seconds: as for `wait`, which raises what is raised here.
            meanwhile: called now and then.
        """
        if self._due and self._early is None:
            try:
                self._early = self._receive(seconds, meanwhile)
            except (WorkerEnded, WorkerLost, SandboxError) as error:
                self._early = error

    def _receive(self, seconds: float, meanwhile: Meanwhile | None = None) -> dict[str, Any]:
        end = time.monotonic() + (seconds if self.isolation else max(seconds, _START_S))
        control = self._control.fileno()
        while True:
            left = end - time.monotonic()
            try:
                message = self._reader.take()  # may have come with the one before
                # bytes that keep trickling in do not move the deadline
                wait = left if meanwhile is None else min(left, _LOOK_S)
                ready = wire.readable(wait, control, self._status) if message is None and left > 0 else set()
                if control in ready:
                    message = self._reader.feed()
                    if message is not None and not self.isolation:
                        message = self._enter(message)
                        end = time.monotonic() + seconds
            except wire.WireError as error:
                raise self._end(str(error)) from None
            if message is not None:
                if message.get("nonce") != self._nonce:
                    self.kill()
                    raise WorkerEnded("garbage", "it sent a message that answers nothing")
                if self._notes(message):
                    continue
                if self.serve is None or "build" not in message:
                    return message
                end += self._serve(message["build"], end - time.monotonic())
            elif self._status in ready and control not in ready:
                raise self._end("")
            elif left <= 0:
                self.kill()
                if not self.isolation and self._fresh:
                    raise WorkerLost("a worker did not get into its sandbox in time")
                raise WorkerEnded("timeout", f"no answer within {seconds:g} s")
            elif meanwhile is not None:
                end += meanwhile()

    def _notes(self, message: dict[str, Any]) -> bool:
        """Whether it is what a worker tells once, ahead of its first answer."""
        told = message.get("launch_us")
        if not math.isnan(self.launch_us) or type(told) is not float:
            return False
        self.launch_us = told
        return True

    def _serve(self, request: object, seconds: float) -> float:
        """Answer a worker's own question; returns the seconds by which its deadline moves."""
        assert self.serve is not None
        answer, fds, later = self.serve(request, seconds)
        try:
            self._control.settimeout(10.0)
            wire.send(self._control, {"built": answer}, fds)
        except OSError as error:
            raise self._end(f"it did not take an answer: {error}") from None
        finally:
            for fd in fds:
                os.close(fd)
        self._control.setblocking(False)
        return later

    def ask(
        self,
        message: Mapping[str, Any],
        seconds: float,
        fds: Sequence[int] = (),
        meanwhile: Meanwhile | None = None,
    ) -> dict[str, Any]:
        """`post` and `wait`."""
        self.post(message, fds)
        return self._answer(seconds, meanwhile)

    def go(self, seconds: float) -> dict[str, Any]:
        """Let it go on with a command to which it has answered that it is ready; its final answer.

        Raises:
            WorkerEnded: as `wait`.
        """
        try:
            self._control.send(b"\0")
        except OSError as error:
            raise self._end(f"it did not take the command: {error}") from None
        return self._answer(seconds)

    def _answer(self, seconds: float, meanwhile: Meanwhile | None = None) -> dict[str, Any]:
        start = time.perf_counter() if self._halt is None else self._halt.release()
        try:
            answer = self.wait(seconds, meanwhile)
            self.answered_in_s = time.perf_counter() - start
            return answer
        finally:
            if self._halt is not None:
                self._halt.hold()

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Within the block it, and all it started, runs only from when it is asked something until it has answered."""
        if self._halt is not None or self.gone:
            yield
            return
        end = time.monotonic() + _FORKED_S
        while not processes.below(self.pid) and not self.gone and time.monotonic() < end:
            time.sleep(0.001)  # its supervisor has not started it yet
        self._halt = processes.Halt(self.pid)
        try:
            self._halt.hold()
            yield
        finally:
            self._halt.release()
            self._halt = None

    def _enter(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Take a worker's first message, sent before it has read anything of a submission; returns what follows it."""
        if "refused" in message:
            self.kill()
            raise SandboxError(str(message["refused"]))
        self.isolation = message.get("isolation", {})
        return self._reader.take() if self.isolation else message

    def _end(self, detail: str) -> WorkerEnded | WorkerLost:
        """Find out how it ended; a worker that only closed its socket is killed."""
        wire.readable(0.5, self._status)
        ended = self.kill()
        if not self.isolation and self._fresh:
            return WorkerLost(f"a worker ended on its way into the sandbox: {ended} {detail}".rstrip())
        if ended.get("excess"):
            return WorkerEnded("exit", self._cell.excess(ended["excess"]))
        if ended.get("signal") is not None and not ended.get("ours"):
            return WorkerEnded("exit", f"the process was ended by {_signal_name(ended['signal'])}")
        if ended.get("code") is not None:
            return WorkerEnded("exit", f"the process exited with code {ended['code']} before it answered")
        return WorkerEnded("garbage", detail or "the process stopped answering")

    def kill(self) -> dict[str, Any]:
        """End the worker and everything it started: within a second, or as fast as hundreds of processes end.

        Returns:
            How it ended: ``code`` or ``signal`` (None where unknown), ``leftover`` (processes found at its end),
            ``excess`` (what it took too much of), ``ours`` (whether this call killed it).
        """
        if self._ended is not None:
            return self._ended
        report = self._read_status(0.0)
        ours = report is None
        if report is None:
            self.stop()
            report = self._read_status(_PATIENCE_S)
        if report is None:
            # gone or stuck, so we take its place
            processes.kill_descendants(self.pid, _KILL_S)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            report = {"code": None, "signal": None, "leftover": 0}
        if self._cell.out_of_memory():
            report["excess"] = "memory"
        self._cell.close()
        self._ended = {**report, "ours": ours}
        os.close(self._status)
        self._control.close()
        self._drain.join(_KILL_S)
        return self._ended

    def _read_status(self, seconds: float) -> dict[str, Any] | None:
        if not wire.readable(seconds, self._status):
            return None
        data = os.read(self._status, 4096)
        return json.loads(data) if data else {"code": None, "signal": None, "leftover": 0}

    @property
    def gone(self) -> bool:
        """Whether it has ended: then its process id may be another's by now."""
        return self._ended is not None or wire.readable(0.0, self._status) != set()

    def stop(self) -> None:
        """Tell its supervisor to kill the worker and all it started, without waiting for that."""
        if self._ended is None:
            self._cell.kill()
            if not self.gone:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGTERM)

    def close(self, *, keep_folder: bool = False) -> None:
        """End the worker; remove its folder unless a later worker goes on in it."""
        self.kill()
        if not keep_folder:
            remove_tree(self.folder)
