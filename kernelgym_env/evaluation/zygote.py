"""The fork server: one process, started by exec, in which torch and the kernel languages are loaded once.

It never touches CUDA and has one thread, so each fork is clean. Per job it forks a *supervisor*, which becomes the
reaper of everything below it and forks the process that runs the source. When that process ends, the supervisor
kills whatever it left behind and writes one line of truth, exit code or signal, to a pipe the candidate has no end of.

    judge ── zygote ── supervisor (one a job) ── candidate ── whatever it starts

Requests: ``{"op": "fork", "job": n, "folder": path, "environ": {...}, "sandbox": {...}, "trial": bool}`` with three
file descriptors (control socket, output pipe, status pipe). Replies: ``{"job": n, "pid": supervisor}``. The candidate's
own first message, before it has read anything of a submission, says what sandbox it is in: ``{"isolation": {...}}``, or
``{"refused": text}`` where it must not go on.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from typing import Any

from kernelgym_env.evaluation import processes, wire
from kernelgym_env.evaluation.sandbox.enter import Refusal, enter
from kernelgym_env.evaluation.sandbox.plan import Plan
from kernelgym_env.evaluation.sandbox.readable import Readable, survey
from kernelgym_env.evaluation.sandbox.watch import Watch

__all__ = ["main"]

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_SWEEP_S = 10.0
_WATCH_S = 0.25
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _preload(kind: str) -> dict[str, str]:
    """Import what candidates need; returns versions by name, ``""`` for what is not there."""
    import numpy
    import torch
    import torch.utils._python_dispatch
    import torch.utils.cpp_extension

    # loaded before the fork: a candidate cannot read them
    from kernelgym_env.evaluation import harness  # noqa: F401
    from kernelgym_env.evaluation.sandbox import trial  # noqa: F401

    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "numpy": numpy.__version__}
    for name in ("triton", "cupy") if kind == "cuda" else ("triton",):
        try:
            versions[name] = __import__(name).__version__
        except ImportError:
            versions[name] = ""
    if kind == "cuda":
        _leave_nvml()
    return versions


def _leave_nvml() -> None:
    """Undo what an import did to NVML: its open files do not survive into a forked candidate, its state would."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return
    while nvml.nvmlShutdown() == 0:
        pass


def _confine(control: socket.socket, request: dict[str, Any], readable: Readable) -> None:
    """Enter the sandbox and tell the judge what is in force; ends the process where it must not go on."""
    try:
        report = enter(Plan.from_dict(request["sandbox"]), readable, pinned=request["pinned"])
    except Refusal as refusal:
        wire.send(control, {"refused": str(refusal)})
        os._exit(0)
    except Exception:  # a fault of ours, which must not be booked on the submission
        wire.send(control, {"refused": f"The sandbox could not be entered:\n{traceback.format_exc()[-2000:]}"})
        os._exit(0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has reset it
    wire.send(control, {"isolation": report})


def _candidate(control: socket.socket, output: int, request: dict[str, Any], readable: Readable) -> None:
    """Become the process that runs a source. Does not return."""
    code = 0
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        keep = control.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, 65_536)
        os.environ.update(request["environ"])
        os.chdir(request["folder"])
        sys.stdout = os.fdopen(1, "w", buffering=1, errors="backslashreplace")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        sys.argv = [""]
        import tempfile

        tempfile.tempdir = None
        from kernelgym_env.evaluation import harness
        from kernelgym_env.evaluation.sandbox import trial

        _confine(control, request, readable)
        if request["trial"]:
            trial.answer(control)
        else:
            harness.serve(control)
        # a submission's `atexit` hooks and destructors get no say in how the process ends
    except BaseException:
        code = 70
    os._exit(code)


def _supervise(candidate: int, status_fd: int, plan: Plan) -> None:
    """Reap and watch until the candidate has ended, takes too much, or the judge sends SIGTERM.

    Then kill what is there and say how it ended. Does not return.
    """
    report: dict[str, Any] = {"code": None, "signal": None, "leftover": 0, "excess": ""}
    watch = Watch(os.getpid(), 0 if plan.group_memory else plan.memory_bytes, plan.processes)
    _go_first()
    due = time.monotonic() + _WATCH_S
    while not _reap(candidate, report):
        came = signal.sigtimedwait(_SIGNALS, max(0.0, due - time.monotonic()))
        if came is not None and came.si_signo == signal.SIGTERM:
            break
        if (now := time.monotonic()) >= due:
            if excess := watch.excess(lambda: signal.SIGTERM in signal.sigpending()):
                report["excess"] = excess
                break
            # looking at hundreds of processes takes long, and must not become all that is done
            due = time.monotonic() + max(_WATCH_S, 4 * (time.monotonic() - now))
    report["leftover"] = len(set(processes.descendants(os.getpid())) - {candidate})
    if report["leftover"]:
        _kill_user_of(plan)
    processes.kill_descendants(os.getpid(), _SWEEP_S)
    with contextlib.suppress(OSError):
        os.write(status_fd, json.dumps(report).encode())
    os._exit(0)


def _go_first() -> None:
    """Be scheduled before hundreds of processes of a submission; it takes privileges, and is done where there are."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _kill_user_of(plan: Plan) -> None:
    """Kill a whole job at once, where it has a user id of its own."""
    if plan.uid is not None and os.geteuid() == 0:
        processes.kill_user(plan.uid)


def _reap(candidate: int, report: dict[str, Any]) -> bool:
    """Reap what has ended; whether the candidate is among it, or there is nobody left."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == candidate:
                if os.WIFSIGNALED(ended[1]):
                    report["signal"] = os.WTERMSIG(ended[1])
                else:
                    report["code"] = os.WEXITSTATUS(ended[1])
                return True
    except ChildProcessError:
        return True
    return False


def _fork(request: dict[str, Any], fds: list[int], server: socket.socket, readable: Readable) -> int:
    """Fork a supervisor with its candidate; returns the supervisor's process id."""
    control_fd, output_fd, status_fd = fds
    pid = os.fork()
    if pid:
        for fd in fds:
            os.close(fd)
        return pid
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        os.setsid()
        server.close()
        control = socket.socket(fileno=control_fd)
        candidate = os.fork()
        if candidate == 0:
            _candidate(control, output_fd, request, readable)
        control.detach()
        os.close(control_fd)
        os.close(output_fd)
        _supervise(candidate, status_fd, Plan.from_dict(request["sandbox"]))
    finally:
        os._exit(71)


def main() -> None:
    """Serve the judge on the socket whose number and device kind are the two arguments."""
    server = socket.socket(fileno=int(sys.argv[1]))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    sandbox = json.loads(os.environ.pop("KERNELGYM_SANDBOX"))
    if sandbox["cores"]:
        os.sched_setaffinity(0, sandbox["cores"])  # before torch counts them
    versions = _preload(sys.argv[2])
    # the way this package was found is no business of a submission
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.environ.get("KERNELGYM_IMPORT_ROOT"))]
    os.environ.pop("KERNELGYM_IMPORT_ROOT", None)
    os.environ.pop("PYTHONPATH", None)
    readable = survey(sandbox["private"], os.environ)
    wire.send(server, {"ready": os.getpid(), "versions": versions})
    reader = wire.Reader(server, limit=64 * wire.MAX_FRAME, fds=True)
    selector = selectors.DefaultSelector()
    selector.register(server, selectors.EVENT_READ)
    supervisors: dict[int, Plan] = {}
    while True:
        ready = selector.select(timeout=0.5)
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                job = supervisors.pop(found[0], None)
                if job and found[1]:  # it was killed in the middle of its work
                    _kill_user_of(job)
        # a child that is no supervisor lost its own one: nothing of a job may outlive it
        for orphan in set(processes.children(os.getpid())) - set(supervisors):
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        if not ready:
            continue
        try:
            request = reader.feed()
        except wire.WireError:
            _go_first()
            for job in supervisors.values():
                _kill_user_of(job)
            processes.kill_descendants(os.getpid(), _SWEEP_S)
            os._exit(0)
        if request is not None:
            fds, reader.fds = reader.fds[:3], reader.fds[3:]
            pid = _fork(request | {"pinned": bool(sandbox["cores"])}, fds, server, readable)
            supervisors[pid] = Plan.from_dict(request["sandbox"])
            wire.send(server, {"job": request["job"], "pid": pid, "at": time.time()})


if __name__ == "__main__":
    main()
