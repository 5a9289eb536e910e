"""Whose code computes: a running process is looked at from outside, a thousand times a second.

On a CPU there is no record of kernels. So the judge stops each running thread of a candidate for some microseconds,
reads where it is, and lets it go on. The file that this address was mapped from says whose code it is: the
submission's own library, or one that was installed. NumPy, SciPy, a BLAS called by pointer and torch's operators
called on another thread or behind torch's dispatcher are all seen this way; what a source says about itself plays no
part.

The candidate tells through a shared byte when it is inside an operator of torch that any submission may use (copies,
concatenation, …), or inside Triton's interpreter, which computes with NumPy; what is seen there is not counted.

- `Shares` -- what was seen.
- `Sampler` -- watches a process and its descendants from a thread of its own.
- `owner` -- whose code a mapped file is; `installed_folders` says where nothing is a submission's own,
  `library_name` what it is called, `has_own_code` whether there is any that was not installed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelgym_env.evaluation import processes
from kernelgym_env.evaluation.codemap import CodeMap

__all__ = ["PRODUCTS", "Sampler", "Shares", "has_own_code", "installed_folders", "library_name", "owner", "supported"]

_SEIZE, _INTERRUPT, _GETREGSET, _CONT = 0x4206, 0x4207, 0x4204, 7
_NT_PRSTATUS = 1
_WALL = 0x40000000
_PERIOD_S = 0.001
_LOOK_S = 0.02
_STOP_S = 0.005
# index of the program counter among the 8-byte registers that PTRACE_GETREGSET gives
_COUNTER = {"x86_64": 16, "aarch64": 32}

_NEUTRAL = (
    "ld-linux", "ld-musl", "libc.", "libc-", "libm.", "libm-", "libmvec", "libpthread", "libdl", "librt", "libgcc_s",
    "libstdc++", "libc++", "libgomp", "libomp", "libiomp5", "libpython", "python3", "libffi", "_ctypes", "libz.",
    "libtorch_python", "_C.", "libshm", "[vdso]", "[vsyscall]", "[heap]", "[stack]",
    "libcuda.", "libcudart", "libcupti", "libnvidia-", "/dev/nvidia",
)  # fmt: skip
_TENSOR = ("libtorch", "libc10", "libcaffe2")

PRODUCTS = ("blas", "mkl", "lapack", "blis", "dnn", "libtorch", "libc10")
"""Parts of the names of libraries that give matrix products and convolutions."""


@dataclass
class Shares:
    """What was seen of a process.

    Attributes:
        seen: samples of running threads by whose code they were in: ``"own"``, ``"library"`` (arithmetic that was
            installed), ``"tensor"`` (torch), ``"neutral"`` (the interpreter, C's and C++'s libraries, code made in
            memory), ``"allowed"`` (inside an operator that any submission may use).
        files: the samples of ``"library"`` and ``"tensor"`` by that and by the file's name.
        period_s: mean wall seconds between samples.
        problem: why nothing could be seen, ``""`` if it could.
    """

    seen: Counter[str] = field(default_factory=Counter)
    files: Counter[tuple[str, str]] = field(default_factory=Counter)
    period_s: float = 0.0
    problem: str = ""


def supported() -> bool:
    """Whether the address at which a thread stands can be read on this machine."""
    return sys.platform == "linux" and platform.machine() in _COUNTER


def owner(path: str, scratch: str, installed: tuple[str, ...]) -> str:
    """Whose code a mapped file is.

    Args:
        path: as in ``/proc/<pid>/maps``; ``""`` for memory without a file.
        scratch: the submission's own folder.
        installed: folders with installed packages and system libraries.

    Returns:
        ``"own"``, ``"library"``, ``"tensor"`` or ``"neutral"``.

    >>> owner("/job/k.so", "/job", ("/usr",)), owner("/usr/lib/libopenblas.so.0", "/job", ("/usr",))
    ('own', 'library')
    >>> owner("/usr/lib/libm.so.6", "/job", ("/usr",)), owner("", "/job", ("/usr",))
    ('neutral', 'neutral')
    """
    if not path:
        return "neutral"
    if path.startswith(scratch.rstrip("/") + "/"):
        return "own"
    name = os.path.basename(path.removesuffix(" (deleted)"))
    if name.startswith(_NEUTRAL) or "/lib-dynload/" in path:
        return "neutral"
    if name.startswith(_TENSOR):
        return "tensor"
    if path.startswith(installed):
        return "library"
    return "own"


def library_name(path: str) -> str:
    """What a library is called in a message: its file, and for a module of Python the package before it.

    >>> library_name("/usr/lib/libopenblas.so.0")
    'libopenblas.so.0'
    >>> library_name("/usr/lib/python3/site-packages/numpy/_core/_multiarray_umath.cpython-312-x86_64-linux-gnu.so")
    'numpy/_multiarray_umath'
    """
    name = os.path.basename(path)
    package = path.rpartition("-packages/")[2].split("/")[0]
    return f"{package}/{name.split('.')[0]}" if ".cpython-" in name or ".abi3." in name else name


def installed_folders() -> tuple[str, ...]:
    """Folders in which nothing is a submission's own."""
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    found |= {sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64", "/opt"}
    return tuple(sorted({os.path.realpath(path) + "/" for path in found} | {path + "/" for path in found}))


def has_own_code(pid: int, scratch: str) -> bool:
    """Whether a process below `pid` has machine code that was not installed: from a file of its own, or made in memory.

    Memory without a name may hold what the interpreter itself made, so this errs on the submission's side.

    Args:
        pid: the process above; it is not looked at itself.
        scratch: the submission's own folder.
    """
    places, scratch = installed_folders(), os.path.realpath(scratch)
    for process in processes.descendants(pid):
        code = CodeMap(process)
        try:
            code.read()
        except OSError:
            continue  # it ended
        if any(not path or owner(path, scratch, places) == "own" for path in code.paths()):
            return True
    return False


class _Registers(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _Ptrace:
    """The few requests that are needed. All have to come from one and the same thread."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).ptrace
        self._call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._call.restype = ctypes.c_long
        self._words = (ctypes.c_uint64 * 64)()
        self._counter = _COUNTER[platform.machine()]

    def __call__(self, request: int, thread: int, address: int = 0, data: int = 0) -> None:
        if self._call(request, thread, address or None, data or None) == -1:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def counter(self, thread: int) -> int:
        """The address at which a stopped thread stands."""
        registers = _Registers(ctypes.addressof(self._words), ctypes.sizeof(self._words))
        self(_GETREGSET, thread, _NT_PRSTATUS, ctypes.addressof(registers))
        return self._words[self._counter]


def _stopped(thread: int) -> int | None:
    """The wait status of a thread that was told to stop; None if it does not within some milliseconds.

    Waiting without end would not do: a process that ends waits for its children, which as zombies wait for whoever
    traces them.
    """
    end = time.monotonic() + _STOP_S
    while True:
        stopped, status = os.waitpid(thread, os.WNOHANG | _WALL)
        if stopped:
            return status
        if time.monotonic() > end:
            return None
        os.sched_yield()


class Sampler:
    """Watches what runs below a process, while the ``with`` block is open.

    Args:
        pid: the process above; it is not looked at itself.
        scratch: the submission's own folder.
        allowed: tells whether the candidate is inside what any submission may use.

    Attributes:
        shares: what was seen, complete once the block is left.
    """

    def __init__(self, pid: int, scratch: str, allowed: Callable[[], bool]) -> None:
        self.shares = Shares()
        self._pid = pid
        self._scratch = os.path.realpath(scratch)
        self._allowed = allowed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._maps: dict[int, CodeMap] = {}
        self._whose: dict[str, str] = {}
        self._places = installed_folders()

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        """The thread's work. When it ends, the kernel lets go of all that it traced, stopped or not."""
        ptrace = _Ptrace()
        held: dict[int, int] = {}  # thread to process
        look, start, rounds = 0.0, time.monotonic(), 0
        try:
            while not self._over.is_set():
                now = time.monotonic()
                if now >= look:
                    self._seize(ptrace, held)
                    look = now + _LOOK_S
                for thread, process in list(held.items()):
                    try:
                        self._sample(ptrace, thread, process)
                    except (OSError, ValueError):
                        held.pop(thread)  # it ended
                rounds += 1
                self._over.wait(_PERIOD_S)
        except OSError as error:
            self.shares.problem = self.shares.problem or str(error.strerror)
        finally:
            self.shares.period_s = (time.monotonic() - start) / max(1, rounds)

    def _seize(self, ptrace: _Ptrace, held: dict[int, int]) -> None:
        for process in processes.descendants(self._pid):
            try:
                threads = [int(name) for name in os.listdir(f"/proc/{process}/task")]
            except OSError:
                continue
            for thread in set(threads) - set(held):
                try:
                    ptrace(_SEIZE, thread)
                except OSError as error:
                    if error.errno != errno.ESRCH:
                        self.shares.problem = self.shares.problem or str(error.strerror)
                    continue
                held[thread] = process

    def _sample(self, ptrace: _Ptrace, thread: int, process: int) -> None:
        stopped, status = os.waitpid(thread, os.WNOHANG | _WALL)
        if stopped:
            # it stopped for a signal, or ended
            if not os.WIFSTOPPED(status):
                raise ProcessLookupError
            event = status >> 16
            ptrace(_CONT, thread, 0, 0 if event else os.WSTOPSIG(status))
            return
        with open(f"/proc/{process}/task/{thread}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[0] != b"R":
                return
        ptrace(_INTERRUPT, thread)
        found = _stopped(thread)
        if found is None:
            return  # it stops later, and is let go at the next visit
        status = found
        if not os.WIFSTOPPED(status):
            raise ProcessLookupError
        signal = 0 if status >> 16 else os.WSTOPSIG(status)
        try:
            allowed = self._allowed()
            address = ptrace.counter(thread)
        finally:
            ptrace(_CONT, thread, 0, signal)
        self._note(process, address, allowed)

    def _note(self, process: int, address: int, allowed: bool) -> None:
        if process not in self._maps:
            self._maps[process] = CodeMap(process)
        path = self._maps[process].find(address)
        if path is None:  # mapped since the last look
            self._maps[process].read()
            path = self._maps[process].find(address) or ""
        if path not in self._whose:
            self._whose[path] = owner(path, self._scratch, self._places)
        whose = self._whose[path]
        if whose in ("library", "tensor") and allowed:
            whose = "allowed"
        self.shares.seen[whose] += 1
        if whose in ("library", "tensor"):
            self.shares.files[whose, library_name(path)] += 1
