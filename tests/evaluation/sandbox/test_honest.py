"""What an honest submission may need still works inside."""

from __future__ import annotations

import shutil

import pytest
from programs import QUICK, RIGHT

from kernelgym_env.evaluation.result import Status

LONG = QUICK.replace(deadlines=QUICK.deadlines.__class__(build_s=280, import_s=120, first_call_s=280, run_s=60))


def test_modules_are_imported_when_they_are_needed(inside):
    code = """
import importlib

names = (
    "torch.fft", "torch.distributions", "torch._inductor", "torch.fx", "sympy", "numpy.polynomial", "sqlite3", "ssl",
    "multiprocessing.pool", "unittest.mock", "concurrent.futures.process", "xml.dom.minidom", "curses", "torch.onnx",
)
result = {name: attempt(importlib.import_module, name) for name in names}
"""
    assert set(inside(code).values()) == {"done"}


def test_programs_and_interpreters_run(inside):
    code = """
def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return [done.returncode, (done.stdout + done.stderr)[-300:]]


result = {
    "shell": run("sh", "-c", "echo $((6 * 7)) > out && cat out"),
    "python": run(sys.executable, "-c", "import numpy, json, tempfile; print(numpy.ones(3).sum())"),
    "ldconfig": run("/sbin/ldconfig", "-p")[:1],
    "cores": run("nproc")[:1],
}
"""
    result = inside(code)
    assert result["shell"] == [0, "42\n"]
    assert result["python"] == [0, "3.0\n"]
    assert result["ldconfig"] == result["cores"] == [0]


def test_processes_threads_and_locks(inside):
    code = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

context = multiprocessing.get_context("fork")
with ProcessPoolExecutor(2, mp_context=context) as pool:
    processes = list(pool.map(abs, [-1, -2, -3]))
with ThreadPoolExecutor(8) as pool:
    threads = list(pool.map(abs, range(8)))
with context.Lock():
    pass
queue = context.Queue()
child = context.Process(target=queue.put, args=("hello",))
child.start()
said = queue.get(timeout=20)
child.join()
result = [processes, threads, said]
"""
    assert inside(code) == [[1, 2, 3], list(range(8)), "hello"]


def test_users_homes_and_names_are_known(inside):
    code = """
import getpass, pathlib, platform, socket, tempfile

result = [getpass.getuser(), str(pathlib.Path.home()), tempfile.gettempdir(), os.getcwd()]
for act in (socket.gethostname, platform.platform, time.localtime, os.cpu_count, os.getloadavg, os.uname):
    act()
open("/proc/self/comm", "w").write("renamed")
open("/dev/null", "w").write("x")
os.urandom(8)
"""
    user, home, temporary, folder = inside(code)
    assert user
    assert home.startswith(folder) and temporary.startswith(folder)


OPENMP = '''
import ctypes
import os
import subprocess

import torch
from torch import nn

os.environ["OMP_PROC_BIND"] = "true"
SOURCE = r"""
#include <cmath>
#include <omp.h>
extern "C" int threads() {
    int n = 0;
    #pragma omp parallel num_threads(4)
    {
        #pragma omp atomic
        ++n;
    }
    return n;
}
extern "C" void clamp(const float* x, const float* w, float* y, long rows, long n) {
    #pragma omp parallel for num_threads(4)
    for (long i = 0; i < rows * n; ++i) {
        float t = x[i] * w[i % n];
        y[i] = (t < -1 ? -1 : t > 1 ? 1 : t) + 0.5f * std::fabs(x[i]);
    }
}
"""
command = ["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-o", "k.so", "-xc++", "-"]
subprocess.run(command, input=SOURCE.encode(), check=True)
lib = ctypes.CDLL("./k.so")
lib.clamp.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
if lib.threads() != 4:
    raise RuntimeError(f"{lib.threads()} threads instead of 4")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        y = torch.empty_like(x)
        lib.clamp(x.data_ptr(), self.w.data_ptr(), y.data_ptr(), *x.shape)
        return y
'''


def test_a_compiler_openmp_and_ctypes(judge):
    evaluation = judge(OPENMP)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


def test_pinned_threads_do_not_fail(judge):
    source = RIGHT.replace(
        "class ModelNew", "import os\nos.sched_setaffinity(0, os.sched_getaffinity(0))\nclass ModelNew"
    )
    assert judge(source).status is Status.CORRECT
    source = """
import ctypes, os, threading
threading.Thread(target=lambda: os.sched_setaffinity(threading.get_native_id(), os.sched_getaffinity(0))).start()
"""
    assert judge(source + RIGHT).status is Status.CORRECT


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_torch_compile(judge):
    source = RIGHT.replace("class ModelNew", "# torch.utils.cpp_extension\nclass ModelNew").replace(
        "return (x * self.w).clamp_(-1, 1).add_(x.abs(), alpha=0.5)", "return self.f(x, self.w)"
    )
    source = source.replace(
        "self.w = nn.Parameter(torch.randn(256))",
        "self.w = nn.Parameter(torch.randn(256))\n"
        "        self.f = torch.compile(lambda x, w: torch.clamp(x * w, -1, 1) + 0.5 * x.abs())",
    )
    evaluation = judge(source, protocol=LONG)
    assert evaluation.status is Status.CORRECT, evaluation.feedback


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_nvcc(inside):
    code = """
# a build: load_inline
open("k.cu", "w").write('extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2; }')
done = subprocess.run(["nvcc", "-arch=sm_90", "-cubin", "-o", "k.cubin", "k.cu"], capture_output=True, text=True)
result = [done.returncode, done.stderr[-500:], os.path.exists("k.cubin")]
"""
    assert inside(code, protocol=LONG) == [0, "", True]
