"""Random hostile submissions, each from a seed.

- `hostile` -- the submission of a seed.
- `Hostile` -- its source, and what it was made of.
- `forged` -- a program whose answers to the judge are not the harness's.
- `shown` -- what a failure prints of it.

Three families: programs put together from fragments (what is done, at which moment, and what is returned), answers to
the judge in place of the harness's, and honest programs damaged at random. Only honest ones are damaged, so that every
program is what was written here.

All of it is harmless also where nothing confines it. A program makes files named ``kg_marker_h*`` and overwrites none,
small shared memory of that name, some sleeping children that end after half a minute, up to 256 MB of memory, up to
5 MB of output; it ends or breaks its own process, and talks to inherited sockets and pipes.
"""

from __future__ import annotations

import json
import random
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["MOMENTS", "Hostile", "forged", "hostile", "shown"]


@dataclass(frozen=True)
class Hostile:
    """A submission.

    Attributes:
        seed: it comes from this alone.
        source: its text, which may be no text that a file could hold.
        parts: what it was made of, in words.
        library_ops: the policy to judge it under, None for the protocol's.
    """

    seed: int
    source: str
    parts: tuple[str, ...]
    library_ops: str | None


def hostile(seed: int) -> Hostile:
    """The submission of a seed."""
    rng = random.Random(f"hostile {seed}")
    family = rng.choices((_program, _forger, _damaged), (57, 22, 21))[0]
    source, parts = family(rng)
    return Hostile(seed, source, tuple(parts), rng.choice((None, "allow", "allow")))


# programs that are put together

_PRELUDE = """\
import atexit, builtins, ctypes, gc, itertools, json, os, random, resource, signal, socket, stat, struct
import subprocess, sys, tempfile, threading, time, weakref
import numpy as np
import torch
from torch import nn

_done = {}


def _first(name, times=1):
    # whether something is done for the first time(s) in this process: forward runs often
    _done[name] = _done.get(name, 0) + 1
    return _done[name] <= times


def _pipes():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            mode = os.fstat(int(name)).st_mode
        except OSError:
            continue
        if int(name) > 2 and (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)):
            found.append(int(name))
    return found


"""

_PLACES = ("/tmp", "/var/tmp", "/dev/shm", ".")


def _write_marker(rng: random.Random) -> str:
    place = rng.choice((*(repr(place) for place in _PLACES), "tempfile.gettempdir()", 'os.environ.get("TMPDIR", ".")'))
    name = rng.choice((f"kg_marker_h_{rng.randrange(10**6)}", "kg_marker_h_é\\udcff", f"kg_marker_h_{'n' * 200}"))
    return f'with open({place} + "/{name}", "x") as file:\n    file.write("x" * {rng.choice((0, 1, 5000))})'


def _many_files(rng: random.Random) -> str:
    return rng.choice(
        (
            'for n in range(200):\n    open(f"kg_marker_h_{n}", "x").close()',
            'for n in range(100):\n    os.mkdir("kg_marker_h_deep")\n    os.chdir("kg_marker_h_deep")',
            'os.mkdir("kg_marker_h_shut", 0)',
            'os.symlink("/", "kg_marker_h_root")\nos.symlink("kg_marker_h_loop", "kg_marker_h_loop")',
            'os.mkfifo("kg_marker_h_fifo")',
            'with open("kg_marker_h_sparse", "xb") as file:\n    file.truncate(100 << 20)',
            'open(b"kg_marker_h_\\xff\\n", "x").close()',
            'os.mkdir("kg_marker_h_gone")\nos.chdir("kg_marker_h_gone")\nos.rmdir("../kg_marker_h_gone")',
        )
    )


def _child(rng: random.Random) -> str:
    return rng.choice(
        (
            'subprocess.Popen(["sleep", "30"])',
            'subprocess.Popen(["sleep", "30"], start_new_session=True, stdin=subprocess.DEVNULL)',
            'os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "30")',
            'for _ in range(4):\n    subprocess.Popen(["sh", "-c", "trap : TERM HUP INT; sleep 30"])',
            "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(30)\n    os._exit(0)",
            "if os.fork() == 0:\n    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
            "    time.sleep(30)\n    os._exit(0)",
            "if os.fork() == 0:\n    os._exit(7)",
            "os.fork()",  # both go on, on the same sockets
            "if os.fork():\n    os._exit(0)",  # the child goes on in place of the process
            "import multiprocessing as mp\nmp.get_context('fork').Process(target=time.sleep, args=(30,)).start()",
        )
    )


def _memory(rng: random.Random) -> str:
    return rng.choice(
        (
            "builtins.kg_block = bytearray(100 << 20)",
            "builtins.kg_block = torch.ones(100 << 20, dtype=torch.uint8)",
            "builtins.kg_block = [bytearray(1 << 20) for _ in range(100)]",
            "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))",
            "raise MemoryError",
            "torch.empty(1 << 50)",
        )
    )


def _shared(rng: random.Random) -> str:
    name = f"kg_marker_h_{rng.randrange(10**6)}"
    return rng.choice(
        (
            "from multiprocessing.shared_memory import SharedMemory\n"
            f'builtins.kg_shm = SharedMemory("{name}", True, 4096)',
            f"libc = ctypes.CDLL(None)\nlibc.shm_open(b'/{name}', 0o302, 0o600)",
            "ctypes.CDLL(None).shmget(0, 4096, 0o1600)",
            f"ctypes.CDLL(None).sem_open(b'/{name}', 0o300, 0o600, 1)",
            "ctypes.CDLL(None).msgget(0, 0o1600)",
            'os.ftruncate(os.memfd_create("kg_marker_h_memfd"), 1 << 20)',
            "builtins.kg_tensor = torch.ones(1000).share_memory_()",
            "import torch.multiprocessing\ntorch.multiprocessing.set_sharing_strategy('file_system')\n"
            "builtins.kg_tensor = torch.ones(1000).share_memory_()",
            "import multiprocessing\nbuiltins.kg_lock = multiprocessing.Lock()",
        )
    )


def _thread(rng: random.Random) -> str:
    return rng.choice(
        (
            "for _ in range(16):\n    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()",
            "threading.Thread(target=time.sleep, args=(30,)).start()",
            "threading.Thread(target=lambda: [None for _ in range(10**7)], daemon=True).start()",
            "threading.Timer(0.3, os._exit, (0,)).start()",
            "threading.Timer(0.2, lambda: 1 / 0).start()",
            "threading.Timer(0.2, signal.raise_signal, (signal.SIGTERM,)).start()",
            "torch.set_num_threads(16)",
        )
    )


def _print(rng: random.Random) -> str:
    text = rng.choice(
        ("x", "é", "\\x1b[2J\\x1b]0;kg\\x07", "\\r", "\\0", "line\\n", "\\ud800", "0.123456789 ", "```\\n")
    )
    times = rng.choice((1, 1000, 200_000))
    return rng.choice(
        (
            f'print("{text}" * {times})',
            f'print("{text}" * {times}, file=sys.stderr, flush=True)',
            f"os.write({rng.choice((1, 2))}, os.urandom({rng.choice((1, 1000, 1 << 20))}))",
            "sys.stdout.buffer.write(bytes(range(256)) * 1000)",
            "while _first('lines', 50_000):\n    print('a line')",
            "import warnings\nwarnings.warn('\\x00 a warning \\ud800')",
        )
    )


def _end(rng: random.Random) -> str:
    number = rng.choice(
        ("SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM", "SIGBUS", "SIGFPE", "SIGALRM", "SIGPIPE", "SIGHUP")
    )
    return rng.choice(
        (
            f"os._exit({rng.choice((0, 1, 70, 71, 137, 255, -1))})",
            f"sys.exit({rng.choice(('0', '3', 'None', repr('text'), '[1]', '10**30'))})",
            "os.abort()",
            "ctypes.string_at(0)",
            "import faulthandler\nfaulthandler._sigsegv()",
            f"signal.raise_signal(signal.{number})",
            "signal.raise_signal(signal.SIGRTMIN + 3)",
            "os.execvp('true', ['true'])",
            "os.execvp('sleep', ['sleep', '30'])",
            "ctypes.CDLL(None).exit(5)",
            "sys.setrecursionlimit(10**7)\nf = lambda: f()\nf()",
        )
    )


_ODD_ERRORS = """\
class Meta(type):
    __name__ = property(lambda cls: 1 / 0)


class Odd(BaseException):
    __str__ = __repr__ = lambda self: {text}
    stdout = property(lambda self: b"\\xff" * 100)
    stderr = "\\ud800" * 50
    exceptions = (ValueError("inner"), 5)
    cmd = ["g++", "\\0"]


raise Odd
"""


_ERRORS = ("KeyboardInterrupt", "SystemExit", "GeneratorExit", "StopIteration", "RecursionError")
_ARGUMENTS = ("chr(0xD800)", "'x' * 10**6", "b'x'", "*range(50)", "")


def _raise(rng: random.Random) -> str:
    text = rng.choice(
        ("1 / 0", "5", "'x' * 10**6", "'\\\\ud800\\\\0'", "sys.exit(3)", "self", "'KGLEAK'", "'0.123456' * 9")
    )
    return rng.choice(
        (
            f"raise {rng.choice(_ERRORS)}",
            f"raise RuntimeError({rng.choice(_ARGUMENTS)})",
            _ODD_ERRORS.format(text=text),
            'class CompilationError(Exception):\n    pass\n\n\nraise CompilationError("Error building extension")',
            "raise subprocess.CalledProcessError(1, ['g++', 'x.cpp'], b'\\xff\\x00', 'bad')",
            "try:\n    1 / 0\nexcept Exception as error:\n    error.__cause__ = error\n    raise",
            "class Lies(Exception):\n    __class__ = property(lambda self: int)\n    __cause__ = None\n\nraise Lies()",
            "error = 5\nfor _ in range(20_000):\n    error = type('E' * 5000, (ValueError,), {})(error)\nraise error",
            "f = lambda n: f(n + 1)\nf(0)",
            "raise ExceptionGroup('many', [ValueError(n) for n in range(1000)])",
            "raise 5",
            "assert False, object()",
        )
    )


def _hang(rng: random.Random) -> str:
    return rng.choice(
        (
            "time.sleep(6)",
            "end = time.monotonic() + 6\nwhile time.monotonic() < end:\n    pass",
            "for n in range(1, 32):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
            "    except (OSError, ValueError):\n        pass\ntime.sleep(6)",
            "lock = threading.Lock()\nlock.acquire()\nlock.acquire(timeout=6)",
            "end = time.monotonic() + 6\nwhile time.monotonic() < end:\n    try:\n        time.sleep(0.05)\n"
            "    except BaseException:\n        pass",
            "signal.raise_signal(signal.SIGSTOP)",
            "print('y' * 100, flush=True)\ntime.sleep(6)",
        )
    )


def _descriptors(rng: random.Random) -> str:
    return rng.choice(
        (
            "for fd in range(3, 64):\n    try:\n        os.close(fd)\n    except OSError:\n        pass",
            "os.closerange(0, 3)",
            "for fd in _pipes():\n    os.close(fd)",
            "for fd in _pipes():\n    os.dup2(1, fd)",
            "for fd in _pipes():\n    os.dup2(fd, 1)\nprint('over the socket')",
            "sys.stdout.close()\nsys.stderr.close()",
            "sys.stdout = sys.stderr = None",
            "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
            "builtins.kg_files = [os.dup(1) for _ in range(3000)]",
            "for fd in _pipes():\n    os.set_blocking(fd, False)",
            "for fd in _pipes():\n    socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)",
            f"for fd in _pipes():\n    os.write(fd, {_noise(rng)})",
            f"for fd in _pipes():\n    for _ in range(20):\n        os.write(fd, {_noise(rng)})",
        )
    )


def _noise(rng: random.Random) -> str:
    """An expression for bytes that look like a message, more or less."""
    text = rng.choice(
        (
            '{"nonce": "", "ok": true}',
            '{"isolation": {}}',
            '{"refused": "no"}',
            "[" * 50_000,
            '{"a":' * 2000,
            '{"nonce": NaN, "us": [Infinity]}',
            "1" * 5000,
            "{}",
            "null",
            '{"\\ud800": "\\u0000"}',
            "",
        )
    )
    data = f"{text[:1]!r} * {len(text)}" if len(set(text)) == 1 else repr(text)
    return rng.choice(
        (
            f'struct.pack("<I", {len(text)}) + ({data}).encode()',
            'b"\\xff" * 8',
            'struct.pack("<I", 0)',
            'struct.pack("<I", 1 << 19) + b"x" * 1000',
            f"os.urandom({rng.choice((1, 3, 100, 60_000))})",
            'b"\\xff\\xfe" + struct.pack("<I", 7)',
        )
    )


def _replace(rng: random.Random) -> str:
    what = rng.choice(
        (
            "json.dumps",
            "json.loads",
            "time.perf_counter",
            "time.perf_counter_ns",
            "time.monotonic",
            "time.sleep",
            "os._exit",
            "os.write",
            "builtins.len",
            "builtins.isinstance",
            "builtins.type",
            "builtins.getattr",
            "builtins.zip",
            "builtins.range",
            "builtins.open",
            "builtins.__import__",
            "builtins.BaseException",
            "torch.Tensor.copy_",
            "torch.Tensor.data_ptr",
            "torch.Tensor.shape",
            "torch.Tensor.__eq__",
            "torch.Tensor.clone",
            "torch.Tensor.zero_",
            "torch.empty",
            "torch.no_grad",
            "torch.manual_seed",
            "torch.set_num_threads",
            "torch.nn.Module.__call__",
            "torch.nn.Module.named_parameters",
            "torch._C._dispatch_get_all_op_names",
            "socket.socket.sendall",
            "socket.socket.recvmsg",
            "random.seed",
            "np.ndarray",
            "sys.modules",
            "sys.path",
            "os.environ",
            "ctypes.memmove",
            "struct.Struct",
            "threading.Lock",
        )
    )
    by = rng.choice(
        (
            "None",
            "lambda *a, **k: None",
            "lambda *a, **k: 1 / 0",
            "lambda *a, **k: 0",
            "lambda *a, **k: torch.zeros(1)",
            "{}",
            "lambda *a, **k: sys.exit(1)",
            "lambda *a, **k: time.sleep(0.05)",
            "itertools.count().__next__",
            "type('T', (), {})",
        )
    )
    return f"{what} = {by}"


def _interpreter(rng: random.Random) -> str:
    return rng.choice(
        (
            "sys.settrace(lambda *a: 1 / 0)",
            "sys.setprofile(lambda *a: None)",
            "sys.setrecursionlimit(60)",
            "sys.modules.clear()",
            "sys.path.clear()\nsys.meta_path.clear()",
            "os.environ.clear()",
            "gc.disable()",
            "gc.callbacks.append(lambda *a: 1 / 0)",
            "gc.set_threshold(1)",
            "sys.excepthook = lambda *a: os._exit(9)",
            "signal.signal(signal.SIGALRM, lambda *a: 1 / 0)\nsignal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)",
            "sys.setswitchinterval(1e-6)",
            "os.chdir(tempfile.gettempdir())",
            "os.nice(19)",
            "torch.set_default_dtype(torch.float64)",
            "torch.set_default_device('meta')",
            "torch.set_grad_enabled(True)",
            "torch.use_deterministic_algorithms(True)",
            "torch.autograd.set_detect_anomaly(True)",
            "torch.set_flush_denormal(True)",
            "torch._C._set_deterministic_algorithms(True)",
            "torch.inference_mode().__enter__()",
            "warnings = __import__('warnings')\nwarnings.simplefilter('error')",
            "ctypes.pythonapi.PyErr_SetInterrupt()",
            "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))",
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))",
            "weakref.finalize(nn.Module, lambda: 1 / 0)",
        )
    )


def _network(rng: random.Random) -> str:
    return rng.choice(
        (
            'socket.create_connection(("127.0.0.1", 9), timeout=0.2)',
            'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))',
            'socket.socket(socket.AF_UNIX).bind("\\0kg_marker_h")',
            'server = socket.socket()\nserver.bind(("127.0.0.1", 0))\nserver.listen()',
            "builtins.kg_pair = socket.socketpair()",
        )
    )


def _frames(rng: random.Random) -> str:
    """What is done to the caller's objects and variables."""
    kind, act = rng.choice(
        (
            ("", ""),
            ("_Harness", "thing.__dict__.clear()"),
            ("_Harness", "thing.sock.close()"),
            ("_Harness", "thing.model = None"),
            ("_Harness", "thing.buffers = thing.arguments = None"),
            ("Buffer", "thing.bytes = torch.zeros(1)"),
            ("Buffer", "thing.bytes.fill_(255)"),
            ("Reader", "thing.limit = 0"),
            ("Reader", "thing._data.extend(b'x' * 100)"),
        )
    )
    if not kind:
        return "frame = sys._getframe()\nwhile frame:\n    frame.f_trace_opcodes = True\n    frame = frame.f_back"
    return f"for thing in gc.get_objects():\n    if type(thing).__name__ == '{kind}':\n        {act}"


_ACTS: dict[str, tuple[int, Callable[[random.Random], str]]] = {
    "a marker": (8, _write_marker),
    "files": (4, _many_files),
    "a child": (9, _child),
    "memory": (3, _memory),
    "shared memory": (6, _shared),
    "threads": (5, _thread),
    "output": (5, _print),
    "an end": (5, _end),
    "an exception": (7, _raise),
    "a hang": (2, _hang),
    "descriptors": (7, _descriptors),
    "a replacement": (9, _replace),
    "the interpreter": (5, _interpreter),
    "the network": (2, _network),
    "the caller": (3, _frames),
}

MOMENTS = ("import", "thread", "init", "forward", "later", "del", "atexit", "tail", "parameters", "to")
"""When a fragment runs; `later` is a call after some others, `tail` the end of the import."""

_RESULTS = {
    "the right output": "y",
    "nothing": "None",
    "a tuple": "(y,)",
    "a list": "[y, y]",
    "a dict": "{'y': y}",
    "odd keys": "{None: y, (1,): y}",
    "mixed keys": "{1: y, True: y, '1': y, '\\ud800': y}",
    "tensor keys": "{y: y}",
    "a loop": "(lambda a: a.append(a) or a)([])",
    "a deep list": "(lambda a: [a := [a] for _ in range(20_000)] and a)(y)",
    "many values": "[y] * 5000",
    "a generator": "(v for v in [y])",
    "a coroutine": "(lambda: (yield y))()",
    "half": "y.half()",
    "double": "y.double()",
    "complex": "y.to(torch.complex64)",
    "integers": "y.long()",
    "booleans": "y > 0",
    "bfloat16": "y.bfloat16()",
    "float8": "y.to(torch.float8_e4m3fn)",
    "sparse": "y.to_sparse()",
    "sparse rows": "y.to_sparse_csr()",
    "mkldnn": "y.to_mkldnn()",
    "quantized": "torch.quantize_per_tensor(y, 0.1, 0, torch.qint8)",
    "nested": "torch.nested.nested_tensor([y, y])",
    "meta": "y.to('meta')",
    "transposed": "y.t()",
    "a transposed copy": "y.t().contiguous().t()",
    "cut": "y[:-1]",
    "one dimension more": "y[None]",
    "flat": "y.reshape(-1)",
    "empty": "torch.empty(0, 3)",
    "a scalar": "y.sum()",
    "a parameter": "nn.Parameter(y)",
    "a subclass": "y.as_subclass(type('T', (torch.Tensor,), {}))",
    "a lying subclass": "y.as_subclass(type('T', (torch.Tensor,), {'shape': property(lambda s: 1 / 0)}))",
    "an array": "y.numpy()",
    "NaN": "y * float('nan')",
    "infinity": "y / 0",
    "one NaN": "y.index_fill(0, torch.tensor(0), float('nan'))",
    "almost": "y + 1e-3",
    "zeros": "torch.zeros_like(y)",
    "uninitialised": "torch.empty_like(y)",
    "in shared memory": "y.share_memory_()",
    "with a gradient": "y.requires_grad_()",
    "expanded": "y[:1].expand(64, 256)",
    "overlapping": "torch.as_strided(torch.zeros(400), (64, 256), (1, 1))",
    "huge": "torch.zeros(1).expand(1 << 20, 1 << 20)",
    "freed": "(y, y.untyped_storage().resize_(0))[0]",
    "negated lazily": "torch._neg_view(-y)",
    "read-only memory": "torch.frombuffer(bytearray(y.numpy().tobytes()), dtype=torch.float32).view(64, 256)",
    "a float": "float('nan')",
    "a huge integer": "10**5000",
    "text": "'x' * 5000",
    "a surrogate": "'\\ud800'",
    "bytes": "b'x'",
    "a function": "lambda: y",
    "the model": "self",
    "the input": "x",
    "the weight": "self.w",
    "a module": "torch",
    "a namedtuple": "__import__('collections').namedtuple('P', 'a b')(y, y)",
    "a tuple subclass": "type('T', (tuple,), {'__iter__': lambda s: 1 / 0, '__len__': lambda s: -1})((y,))",
    "a dict subclass": "type('D', (dict,), {'keys': lambda s: 5, '__getitem__': lambda s, k: 1 / 0})(a=y)",
    "a liar": "type('L', (), {'__class__': property(lambda s: torch.Tensor)})()",
    "an attribute bomb": "type('A', (), {'__getattribute__': lambda s, n: 1 / 0})()",
    "changed after the return": "(y, threading.Timer(0.002, y.zero_).start())[0]",
    "a replaced method": "(y, setattr(y, 'numel', lambda: 10**9))[0]",
    "moved data": "(y, setattr(y, 'data', torch.zeros(2)))[0]",
}

_SIGNATURES = {
    "as it should be": "def forward(self, x):",
    "no argument": "def forward(self):",
    "one more": "def forward(self, x, more):",
    "anything": "def forward(self, x=None, *more, **named):",
    "asynchronous": "async def forward(self, x):",
    "static": "@staticmethod\n    def forward(x, self=None):",
    "positional": "def forward(self, x, /):",
    "named": "def forward(self, *, x):",
    "a property": "@property\n    def forward(self, x=torch.zeros(64, 256)):",
    "without gradient": "@torch.inference_mode()\n    def forward(self, x):",
}

_INITS = {
    "as it should be": "def __init__(self):",
    "one more": "def __init__(self, more):",
    "anything": "def __init__(self, *more, **named):",
    "class method": "@classmethod\n    def __init__(self):",
}

_WEIGHTS = {
    "as it should be": "self.w = nn.Parameter(torch.randn(256))",
    "none": "self.w = torch.ones(256)",
    "many": "self.w = nn.Parameter(torch.randn(256))\n"
    "        for n in range(1500):\n            self.register_parameter(f'p{n}', nn.Parameter(torch.ones(1)))",
    "integers": "self.w = nn.Parameter(torch.ones(256, dtype=torch.int32), requires_grad=False)",
    "complex": "self.w = nn.Parameter(torch.randn(256, dtype=torch.complex64))",
    "meta": "self.w = nn.Parameter(torch.empty(256, device='meta'))",
    "expanded": "self.w = nn.Parameter(torch.ones(1).expand(256))",
    "odd names": "self.w = nn.Parameter(torch.randn(256))\n        self._parameters['\\ud800\\0'] = self.w",
    "number names": "self.w = nn.Parameter(torch.randn(256))\n        self._parameters[5] = self.w",
    "a subclass": "self.w = nn.Parameter(torch.randn(256).as_subclass(type('T', (torch.Tensor,), {})))",
    "huge": "self.w = nn.Parameter(torch.randn(256))\n        self.big = nn.Parameter(torch.zeros(1).expand(1 << 30))",
    "a loop": "self.w = nn.Parameter(torch.randn(256))\n        self._modules['me'] = self",
    "freed": "self.w = nn.Parameter(torch.randn(256))\n        self.w.untyped_storage().resize_(0)",
    "no super": "pass",
}

_ENTRIES = {
    "as it should be": "",
    "a function": "_Class = ModelNew\ndef ModelNew(*a):\n    return _Class()\n",
    "a lambda": "_Class = ModelNew\nModelNew = lambda *a: (lambda x: x * 2)\n",
    "nothing": "ModelNew = None\n",
    "an instance": "ModelNew = ModelNew()\n",
    "a number": "ModelNew = 5\n",
    "the module": "ModelNew = sys.modules[__name__]\n",
    "renamed": "Model_New = ModelNew\ndel ModelNew\n",
    "a metaclass": "class ModelNew(metaclass=type('M', (type,), {'__call__': lambda c, *a: 1 / 0})):\n    pass\n",
    "new gives something else": "ModelNew.__new__ = lambda *a: torch.zeros(3)\n",
    "a property of the module": "def __getattr__(name):\n    raise KeyError(name)\n_kept = ModelNew\ndel ModelNew\n",
    "scripted": "_Class = ModelNew\nModelNew = lambda: torch.jit.script(_Class())\n",
    "a lying class": "ModelNew.__class__ = property(lambda s: 1 / 0)\n",
    "deep copies": "_Class = ModelNew\nModelNew = lambda: __import__('copy').deepcopy(_Class())\n",
    "frozen": "ModelNew.__setattr__ = lambda s, n, v: (_ for _ in ()).throw(AttributeError(n))\n",
}

_WORK = (
    "y = (x * self.w).clamp(-1, 1) + 0.5 * x.abs()",
    "y = torch.clamp(x * self.w, -1, 1).add_(x.abs(), alpha=0.5)",
    "y = torch.from_numpy(np.clip(x.numpy() * self.w.detach().numpy(), -1, 1) + 0.5 * np.abs(x.numpy()))",
)


def _act(rng: random.Random, parts: list[str], moment: str) -> str:
    name = rng.choices(tuple(_ACTS), [weight for weight, _ in _ACTS.values()])[0]
    code = _ACTS[name][1](rng)
    how = rng.choices(("plain", "caught", "caught all"), (6, 3, 1))[0]
    parts.append(f"{name} at {moment}" + ("" if how == "plain" else f", {how}"))
    if how != "plain":
        kind = "Exception" if how == "caught" else "BaseException"
        code = f"try:\n{textwrap.indent(code, '    ')}\nexcept {kind}:\n    pass"
    return code


def _odd(rng: random.Random, table: dict[str, str], what: str, share: float, parts: list[str]) -> str:
    """The first entry of a table, or with some probability another one."""
    name = rng.choice(tuple(table)) if rng.random() < share else next(iter(table))
    if name != next(iter(table)):
        parts.append(f"{what}: {name}")
    return table[name]


def _program(rng: random.Random) -> tuple[str, list[str]]:
    parts: list[str] = []
    at: dict[str, list[str]] = {moment: [] for moment in MOMENTS}
    for _ in range(rng.choices((0, 1, 2, 3), (2, 5, 2, 1))[0]):
        moment = rng.choice(MOMENTS)
        at[moment].append(_act(rng, parts, moment))
    share = 0.25 if any(at.values()) else 0.7
    result = _odd(rng, _RESULTS, "returns", share, parts)
    signature = _odd(rng, _SIGNATURES, "forward", share / 5, parts)
    init = _odd(rng, _INITS, "constructor", share / 8, parts)
    weights = _odd(rng, _WEIGHTS, "parameters", share / 4, parts)
    entry = _odd(rng, _ENTRIES, "entry", share / 4, parts)
    late = rng.choice((0, 0, 2, 4, 9))
    if result != "y" and late:
        parts.append(f"only after {late} calls")

    def block(moment: str, indent: int) -> str:
        lines = []
        for number, code in enumerate(at[moment]):
            # whatever is done in a call is done once
            lines.append(f"if _first('{moment} {number}'):\n{textwrap.indent(code, '    ')}")
        return textwrap.indent("\n".join(lines) or "pass", " " * indent)

    source = _PRELUDE
    source += "\n".join(at["import"]) + "\n\n"
    if at["thread"]:
        source += f"def _beside():\n{block('thread', 4)}\n\n\nthreading.Thread(target=_beside, daemon=True).start()\n\n"
    if at["atexit"]:
        source += f"def _last():\n{block('atexit', 4)}\n\n\natexit.register(_last)\n\n"
    source += f"class ModelNew(nn.Module):\n    {init}\n"
    source += ("" if weights == "pass" else "        super().__init__()\n") + f"        {weights}\n{block('init', 8)}\n"
    source += f"\n    {signature}\n{block('forward', 8)}\n"
    if at["later"]:
        source += f"        if not _first('call', {rng.choice((2, 5, 9))}):\n{block('later', 12)}\n"
    source += f"        {rng.choice(_WORK)}\n"
    source += f"        if not _first('result', {late}):\n            return {result}\n        return y\n"
    for moment, head in (
        ("del", "__del__(self)"),
        ("parameters", "named_parameters(self, *a, **k)"),
        ("to", "to(self, *a, **k)"),
    ):
        if at[moment]:
            source += f"\n    def {head}:\n{block(moment, 8)}\n        return self\n"
    source += f"\n\n{entry}" + "\n".join(at["tail"]) + "\n"
    return source, parts or ["a plain program"]


# answers in place of the harness's

_VALUES = (
    "None",
    "True",
    "-1",
    "0",
    "1e308",
    "float('nan')",
    "float('inf')",
    "10**400",
    "2**63",
    "''",
    "'\\ud800\\0'",
    "'x' * 100_000",
    "[]",
    "{}",
    "[None]",
    "[[[[1]]]]",
    "[float('nan')] * 4",
    "['1', None, -5.0]",
    "[1e-300] * 20",
    "[10**400]",
    "{'t': 'tensor'}",
    "{'t': 'tensor', 'dtype': 'float32', 'shape': [64, 256], 'stride': [256, 1], 'offset': 0}",
    "{'t': 'tensor', 'dtype': 'float32', 'shape': [64, 256], 'stride': [-1, 1], 'offset': 0}",
    "{'t': 'tensor', 'dtype': 'float32', 'shape': [64, 256], 'stride': [1, 64], 'offset': -5}",
    "{'t': 'tensor', 'dtype': 'float32', 'shape': [64, 256]}",
    "{'t': 'tensor', 'dtype': 'float32', 'shape': [10**30], 'stride': [10**30]}",
    "{'t': 'tensor', 'dtype': [], 'shape': {}}",
    "{'t': 'list', 'items': [{'t': 'value', 'value': 10**400}] * 900}",
    "{'t': 'dict', 'keys': [1, 'a'], 'items': []}",
    "{'t': 'dict', 'keys': ['\\ud800'], 'items': [{'t': 'value', 'value': None}]}",
    "{'t': ['tensor'], 'items': 5}",
    "{'t': 'value', 'value': {}}",
    "{'message': ['x'], 'type': None, 'where': 5, 'compile': 'yes'}",
    "{'message': 'x' * 300_000, 'compile': True}",
    "{'type': '\\ud800', 'message': 0.123456, 'where': {}}",
    "[{'name': 'w', 'numel': 256, 'dtype': 'float32', 'print': ''}] * 500",
    "[{'name': 'w', 'numel': [], 'dtype': {}, 'print': None}, 5, {'name': ['w']}]",
)

_KEYS = (
    "ok",
    "error",
    "builds_failed",
    "tree",
    "unfit",
    "us",
    "tensors",
    "found",
    "captured",
    "failed",
    "calls",
    "nonce",
    "isolation",
    "refused",
    "fault",
    "evaluation",
)

_FORGER = """\
import gc, json, os, struct, sys, time
import torch
from torch import nn
{also}

def _spoil(reply, op):
{spoil}
    return reply


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        return (x * self.w).clamp_(-1, 1).add_(x.abs(), alpha=0.5)


harness = sys.modules["kernelgym_env.evaluation.harness"]
wire = harness.wire
_send = wire.send
_op = [""]
for name in [name for name in dir(harness._Harness) if name.startswith("do_")]:
    def wrapped(self, command, original=getattr(harness._Harness, name)):
        _op[0] = command["op"]
        return original(self, command)

    setattr(harness._Harness, name, wrapped)


def _forged(sock, message, fds=()):
{forge}


wire.send = _forged
"""

_FORGE = {
    "": "    _send(sock, _spoil(message, _op[0]), fds)",
    "twice": "    for _ in range(2):\n        _send(sock, _spoil(dict(message), _op[0]), fds)",
    "late": "    time.sleep(0.05)\n    _send(sock, _spoil(message, _op[0]), fds)",
    "in pieces": "    body = json.dumps(_spoil(message, _op[0])).encode()\n"
    "    frame = struct.pack('<I', len(body)) + body\n"
    "    for n in range(0, 400, 8):\n        sock.sendall(frame[n:n + 8] if n < 392 else frame[n:])",
    "with descriptors": "    _send(sock, _spoil(message, _op[0]), [0, 1, 2])",
    "deep": "    body = (json.dumps(message)[:-1] + ', \"deep\": ' + '[' * 5000 + ']' * 5000 + '}').encode()\n"
    "    sock.sendall(struct.pack('<I', len(body)) + body)",
    "a list": "    body = json.dumps([message]).encode()\n    sock.sendall(struct.pack('<I', len(body)) + body)",
    "too long": "    sock.sendall(struct.pack('<I', 1 << 31) + b'x' * 1000)",
    "cut": "    body = json.dumps(message).encode()\n    sock.sendall(struct.pack('<I', len(body) + 50) + body)",
}

_ASKED = {
    "call": ("tree", "tree", "tree", "unfit"),
    "denied": ("found", "captured", "failed", "tree"),
    "repeat": ("calls",),
    "time": ("us", "us", "us", "tree"),
    "tensors": ("tensors", "tensors"),
}
_OPS = ("load", "tensors", "weights", "buffer", "inputs", "call", "denied", "repeat", "batch", "time")


def forged(spoil: str, *, also: str = "", how: str = "") -> str:
    """A program that is right and answers the judge itself: `spoil` are indented lines that change `reply` to `op`."""
    return _FORGER.format(also=also, spoil=spoil, forge=_FORGE[how])


def _forger(rng: random.Random) -> tuple[str, list[str]]:
    parts, lines = [], []
    for _ in range(rng.choice((1, 1, 2, 3))):
        op, key, value = rng.choice((*_OPS, "call", "call", "time")), rng.choice(_KEYS), rng.choice(_VALUES)
        if rng.random() < 0.7:  # what the command is asked for, and not what it never says
            key = rng.choice((*_ASKED.get(op, ("error",)), rng.choice(("error", "builds_failed"))))
        if rng.random() < 0.15:
            lines.append(f"    if op == {op!r} and {key!r} in reply:\n        del reply[{key!r}]")
            parts.append(f"no {key} from {op}")
        else:
            lines.append(f"    if op == {op!r}:\n        reply[{key!r}] = {value}")
            parts.append(f"{key} of {op} is {value[:60]}")
    how = rng.choice(tuple(_FORGE)) if rng.random() < 0.3 else ""
    if how:
        parts.append(f"sent {how}")
    also = rng.choice(("", "", "print('0.1234567 ' * 1000)", "sys.stdout = None"))
    return forged("\n".join(lines), also=also, how=how), parts


# damaged honest programs

_HONEST = (
    """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        return (x * self.w).clamp_(-1, 1).add_(x.abs(), alpha=0.5)
""",
    '''
"""Rows one at a time, in NumPy."""
import numpy as np
import torch
from torch import nn


def rows(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = np.clip(x[i] * w, -1.0, 1.0) + 0.5 * np.abs(x[i])
    return out


class ModelNew(nn.Module):
    """What the task asks for."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        y = rows(x.detach().numpy(), self.w.detach().numpy())
        if y.dtype != np.float32:
            raise TypeError(f"not {y.dtype}")
        return torch.from_numpy(y)
''',
    """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def clamp_kernel(x, w, y, n, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    value = tl.load(x + at, mask=inside)
    product = value * tl.load(w + at % n, mask=inside)
    product = tl.minimum(tl.maximum(product, -1.0), 1.0)
    tl.store(y + at, product + 0.5 * tl.abs(value), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        y = torch.empty_like(x)
        clamp_kernel[(triton.cdiv(x.numel(), 2048),)](x, self.w, y, 256, x.numel(), BLOCK=2048)
        return y
""",
)

_TOKEN = re.compile(r"\w+|[^\w\s]|\s+")


def _cut(rng: random.Random, text: str) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _byte_noise(rng: random.Random, text: str) -> str:
    letters = list(text)
    for _ in range(rng.choice((1, 2, 5, 40))):
        letters[rng.randrange(len(letters))] = chr(
            rng.choice((rng.randrange(32), rng.randrange(256), rng.randrange(0x3000)))
        )
    return "".join(letters)


def _tokens(rng: random.Random, text: str) -> str:
    tokens = _TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 2, 6))):
        a, b = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[a], tokens[b] = tokens[b], tokens[a] if rng.random() < 0.7 else tokens[b]
    return "".join(tokens)


def _lines(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(lines))
        move = rng.randrange(4)
        if move == 0 and len(lines) > 1:
            del lines[at]
        elif move == 1:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif move == 2:
            lines[at] = "    " + lines[at]
        else:
            lines[at:at] = [lines[at]] * rng.choice((1, 50))
    return "".join(lines)


def _letters(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text))
    odd = rng.choice(
        ("\0", "\ud800", "\ufeff", "\u202e", "\x1a", "\x0c", "\r", "\u2028", "é", "𝕏", "\U0010ffff", "\x85", "\t")
    )
    return text[:at] + odd * rng.choice((1, 1, 100)) + text[at:]


def _literals(rng: random.Random, text: str) -> str:
    return (
        rng.choice(
            (
                f"A = {'9' * rng.choice((50, 4000, 5000, 100_000))}\n",
                f"A = 0x{'f' * 100_000}\n",
                f"A = '{'x' * rng.choice((1000, 200_000, 300_000))}'\n",
                f"A = [{'0, ' * 30_000}]\n",
                f"A = {{{', '.join(f'{n}: {n}' for n in range(10_000))}}}\n",
                "A = 1e999999\nB = 10**10000\n",
                "# -*- coding: utf-16 -*-\n",
                "# coding: no-such-encoding\n",
                f"#{'x' * 250_000}\n",
                "".join(f"a{n} = {n}\n" for n in range(10_000)),
            )
        )
        + text
    )


def _nested(rng: random.Random, text: str) -> str:
    n = rng.choice((50, 95, 600, 1500, 5000, 40_000))
    return (
        rng.choice(
            (
                f"A = {'(' * n}1{')' * n}\n",
                f"A = {'[' * n}{']' * n}\n",
                f"A = {'-' * n}1\n",
                f"A = 1{' + 1' * n}\n",
                f"A = {'not ' * n}1\n",
                f"A = {'lambda: ' * n}1\n",
                f"A = torch{'.nn' * n}\n",
                f"A = 1{' if 1 else 1' * n}\n",
                "".join(f"{' ' * level}if 1:\n" for level in range(min(n, 99))) + f"{' ' * min(n, 99)}pass\n",
                "".join(f"{' ' * level}def f():\n" for level in range(min(n, 60))) + f"{' ' * min(n, 60)}pass\n",
                f"if 0:\n    pass\n{f'elif 0:{chr(10)}    pass{chr(10)}' * min(n, 5000)}",
            )
        )
        + text
    )


def _renamed(rng: random.Random, text: str) -> str:
    return text.replace(
        "ModelNew", rng.choice(("Model", "modelnew", "ModelNew2", "ModelNеw", "class", "", "ModelNew, x"))
    )


def _numbers(rng: random.Random, text: str) -> str:
    wanted = rng.choice(("0", "-1", "1e400", "None", "1 << 16", "0.5000001", "1j", "'a'", "()", "True"))
    found = list(re.finditer(r"(?<![\w.])\d+(\.\d+)?", text))
    if not found:
        return wanted
    one = rng.choice(found)
    return text[: one.start()] + wanted + text[one.end() :]


_DAMAGE: dict[str, tuple[int, Callable[[random.Random, str], str]]] = {
    "cut": (3, _cut),
    "noise": (3, _byte_noise),
    "tokens": (5, _tokens),
    "lines": (6, _lines),
    "letters": (3, _letters),
    "literals": (3, _literals),
    "nesting": (3, _nested),
    "renamed": (1, _renamed),
    "numbers": (5, _numbers),
}


def _damaged(rng: random.Random) -> tuple[str, list[str]]:
    number = rng.choices(range(len(_HONEST)), (3, 3, 1))[0]
    text, parts = _HONEST[number], [f"honest {number}"]
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choices(tuple(_DAMAGE), [weight for weight, _ in _DAMAGE.values()])[0]
        text = _DAMAGE[name][1](rng, text or "\n")
        parts.append(f"damaged: {name}")
    return text, parts


def shown(program: Hostile) -> str:
    """What a failure prints: how it is made again, and the source."""
    source = program.source if len(program.source) <= 8000 else program.source[:6000] + "\n…\n" + program.source[-1500:]
    head = json.dumps({"seed": program.seed, "library_ops": program.library_ops, "parts": program.parts})
    return f"{head}\n{source.encode('utf-8', 'backslashreplace').decode()}"
