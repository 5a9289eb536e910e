"""The fork server: one process, started by exec, in which torch and the kernel languages are loaded once.

It never touches CUDA and has one thread, so each fork is clean. Per job it forks a *supervisor*, which becomes the
reaper of everything below it and forks the process that runs the source. When that process ends, the supervisor
kills whatever it left behind and writes one line of truth, exit code or signal, to a pipe the candidate has no end of.

    judge ── zygote ── supervisor (one a job) ── candidate ── whatever it starts

Where the kernel allows it, a further process stands between the last two: the first one of a PID namespace, with which
everything in the namespace ends.

Requests: ``{"op": "fork", "job": n, "folder": path, "environ": {...}, "sandbox": {...}, "role": name}`` with three
file descriptors (control socket, output pipe, status pipe). Replies: ``{"job": n, "pid": supervisor}``, or
``{"job": n, "failed": text}`` where the machine has no room for another process. The candidate's own first message,
before it has read anything of a submission, says what sandbox it is in: ``{"isolation": {...}}``, or
``{"refused": text}`` where it must not go on.

Only the end of its judge ends the fork server: what the kernel refuses in the meantime costs one job at most.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from kernelgym_env.evaluation import processes, wire
from kernelgym_env.evaluation.sandbox import namespaces
from kernelgym_env.evaluation.sandbox.enter import Refusal, enter
from kernelgym_env.evaluation.sandbox.plan import Plan
from kernelgym_env.evaluation.sandbox.readable import Readable, survey
from kernelgym_env.evaluation.sandbox.watch import Watch

__all__ = ["main"]

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_SWEEP_S = 10.0
_WATCH_S = 0.25
_SPARE = 16
_FORK_S, _LONGEST_PAUSE_S = 5.0, 0.5
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
    from kernelgym_env.evaluation.building import worker  # noqa: F401
    from kernelgym_env.evaluation.sandbox import trial  # noqa: F401

    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "numpy": numpy.__version__}
    for name in ("triton", "cupy") if kind == "cuda" else ("triton",):
        try:
            versions[name] = __import__(name).__version__
        except ImportError:
            versions[name] = ""
    if kind == "cuda":
        _leave_nvml()
    elif versions["triton"]:
        _tune_without_gpu()
    return versions


def _tune_without_gpu() -> None:
    """Let `triton.autotune` choose in the interpreter too: it calls each configuration once, by the wall clock."""
    from triton.runtime.autotuner import Autotuner

    def once(call: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
        start = time.perf_counter()
        call()
        return [(time.perf_counter() - start) * 1e3] * len(quantiles)

    Autotuner.do_bench = property(lambda _: once, lambda *_: None)


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
        plan = Plan.from_dict(request["sandbox"])
        report = enter(plan, readable, pids=request["pids"], pinned=request["pinned"])
    except Refusal as refusal:
        wire.send(control, {"refused": str(refusal)})
        os._exit(0)
    except Exception:  # a fault of ours, which must not be booked on the submission
        wire.send(control, {"refused": f"The sandbox could not be entered:\n{traceback.format_exc()[-2000:]}"})
        os._exit(0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has reset it
    wire.send(control, {"isolation": report})


def _renew_caches() -> None:
    """CuPy 14 looks up the folder of its cache once, when it is imported: before the fork, where it was another one."""
    backend: Any = getattr(sys.modules.get("cupy.cuda.compiler"), "_kernel_cache_backend", None)
    if hasattr(backend, "_cache_dir"):
        backend._cache_dir = os.environ["CUPY_CACHE_DIR"]
        os.makedirs(backend._cache_dir, exist_ok=True)


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
        from kernelgym_env.evaluation.building import worker
        from kernelgym_env.evaluation.sandbox import trial

        _confine(control, request, readable)
        _renew_caches()
        {"harness": harness.serve, "trial": trial.answer, "compile": worker.answer}[request["role"]](control)
        # a submission's `atexit` hooks and destructors get no say in how the process ends
    except BaseException:
        code = 70
    os._exit(code)


def _supervise(child: int, status_fd: int, told: int, plan: Plan) -> None:
    """Reap and watch until the candidate has ended, takes too much, or the judge sends SIGTERM.

    Then kill what is there and say how it ended. Does not return.

    Args:
        child: the candidate, or the first process of its PID namespace.
        status_fd: where to say it.
        told: where that first process says how the candidate ended; -1 without one.
        plan: how the candidate is confined.
    """
    report: dict[str, Any] = {"code": None, "signal": None, "leftover": 0, "excess": ""}
    # the kernel's own bound comes first, where it holds
    watch = Watch(os.getpid(), 0 if plan.group_memory else plan.memory_bytes, plan.processes + _SPARE)
    asked: list[int] = []

    def end(*_: object) -> None:
        """Kill at once, whatever is being done: among hundreds of processes that may take long."""
        asked.append(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _go_first()
    due = time.monotonic() + _WATCH_S
    while (status := _reap(child)) is None and not asked:
        signal.sigtimedwait({signal.SIGCHLD}, max(0.0, due - time.monotonic()))
        if (now := time.monotonic()) >= due:
            if excess := watch.excess(lambda: bool(asked)):
                report["excess"] = excess
                end()
            # looking at hundreds of processes takes long, and must not become all that is done
            due = time.monotonic() + max(_WATCH_S, 4 * (time.monotonic() - now))
    if told >= 0:
        with contextlib.suppress(ValueError), open(told, "rb") as pipe:
            report.update(json.loads(pipe.read()))
    elif status is not None:
        report.update(_outcome(status))
    if told < 0 and (left := set(processes.descendants(os.getpid())) - {child}):
        report["leftover"] = len(left)
        _kill_user_of(plan)
    processes.kill_descendants(os.getpid(), _SWEEP_S)
    with contextlib.suppress(OSError):
        os.write(status_fd, json.dumps(report).encode())
    os._exit(0)


def _outcome(status: int) -> dict[str, int | None]:
    if os.WIFSIGNALED(status):
        return {"code": None, "signal": os.WTERMSIG(status)}
    return {"code": os.WEXITSTATUS(status), "signal": None}


def _be_first(candidate: int, told: int) -> None:
    """Be the first process of a PID namespace: reap until the candidate has ended. Does not return.

    When it ends, the kernel kills all that is left in the namespace, at once.
    """
    while (ended := os.waitpid(-1, 0))[0] != candidate:
        pass
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.readlink('/proc/self')}/children") as file:
        left = len(file.read().split())
        os.write(told, json.dumps({**_outcome(ended[1]), "leftover": left}).encode())
    os._exit(0)


def _go_first() -> None:
    """Be scheduled before hundreds of processes of a submission; it takes privileges, and is done where there are."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _kill_user_of(plan: Plan) -> None:
    """Kill a whole job at once, where it has a user id of its own."""
    if plan.uid is not None and os.geteuid() == 0:
        processes.kill_user(plan.uid)


def _reap(child: int) -> int | None:
    """Reap what has ended; the wait status of `child` once it has, 0 if there is no child at all."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                return ended[1]
    except ChildProcessError:
        return 0
    return None


def _fork(request: dict[str, Any], fds: list[int], server: socket.socket, readable: Readable) -> int:
    """Fork a supervisor with its candidate; returns the supervisor's process id.

    Raises:
        OSError: if there is no room for another process or for the file descriptors, which are closed in any case.
    """
    try:
        if len(fds) != 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # the kernel drops those that have no room
        control_fd, output_fd, status_fd = fds
        pid = _fork_patiently()
    except OSError:
        _close(fds)
        raise
    if pid:
        _close(fds)
        return pid
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        os.setsid()
        server.close()
        plan = Plan.from_dict(request["sandbox"])
        request["pids"] = _separate_pids(plan)
        told, tells = os.pipe() if request["pids"] == "on" else (-1, -1)
        control = socket.socket(fileno=control_fd)
        child = _fork_patiently()
        if child == 0:
            if tells >= 0 and (candidate := _fork_from_first(tells)):
                control.detach()
                for fd in (control_fd, output_fd, status_fd, told):
                    os.close(fd)
                _be_first(candidate, tells)
            _candidate(control, output_fd, request, readable)
        control.detach()
        for fd in (control_fd, output_fd, tells):
            if fd >= 0:
                os.close(fd)
        _supervise(child, status_fd, told, plan)
    except BaseException:  # a fault of ours, or of the machine
        report = {"code": None, "signal": None, "leftover": 0, "failed": traceback.format_exc()[-2000:]}
        with contextlib.suppress(OSError):
            os.write(status_fd, json.dumps(report).encode())
    finally:
        os._exit(71)


def _fork_patiently() -> int:
    """Fork; where the machine has no room for another process, try again for some seconds.

    Raises:
        OSError: if it has none after that.
    """
    end, pause = time.monotonic() + _FORK_S, 0.01
    while True:
        try:
            return os.fork()
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _separate_pids(plan: Plan) -> str:
    """Enter what gives the next child process ids of its own; ``"on"`` or why not."""
    if plan.kind == "cuda":
        return "off: CUDA shares memory only between processes that see each other"
    if "pids" in plan.waived:
        return f"off: {plan.waived['pids']}"
    try:
        return namespaces.enter_pids()
    except OSError as error:
        return f"off: {error.strerror}"


def _fork_from_first(tells: int) -> int:
    """Fork the candidate from the first process of its PID namespace; 0 in the candidate."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    candidate = _fork_patiently()
    if candidate == 0:
        os.close(tells)
    return candidate


def main() -> None:
    """Serve the judge on the socket whose number and device kind are the two arguments."""
    server = socket.socket(fileno=int(sys.argv[1]))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    sandbox = json.loads(os.environ.pop("KERNELGYM_SANDBOX"))
    if sandbox["cores"]:
        os.sched_setaffinity(0, sandbox["cores"])  # before torch counts them
    versions = _preload(sys.argv[2])
    gc.collect()
    gc.freeze()  # to look at all that is loaded would cost each forked process a copy of it
    # the way this package was found is no business of a submission
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.environ.get("KERNELGYM_IMPORT_ROOT"))]
    os.environ.pop("KERNELGYM_IMPORT_ROOT", None)
    os.environ.pop("PYTHONPATH", None)
    readable = survey(sandbox["private"], os.environ)
    reader = wire.Reader(server, limit=64 * wire.MAX_FRAME, fds=True)
    selector = selectors.DefaultSelector()
    selector.register(server, selectors.EVENT_READ)
    supervisors: dict[int, Plan] = {}
    wire.send(server, {"ready": os.getpid(), "versions": versions})
    while True:
        ready = selector.select(timeout=0.5)
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                job = supervisors.pop(found[0], None)
                if job and found[1]:  # it was killed in the middle of its work
                    _kill_user_of(job)
        # a child that is no supervisor lost its own one: nothing of a job may outlive it
        with contextlib.suppress(OSError):  # without a descriptor to look with: at the next turn
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
            fds, reader.fds = reader.fds, []
            try:
                pid = _fork(request | {"pinned": bool(sandbox["cores"])}, fds, server, readable)
            except OSError as error:
                wire.send(server, {"job": request["job"], "failed": error.strerror or str(error)})
                continue
            supervisors[pid] = Plan.from_dict(request["sandbox"])
            wire.send(server, {"job": request["job"], "pid": pid, "at": time.time()})


if __name__ == "__main__":
    main()
