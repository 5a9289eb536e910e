"""Small tasks and submissions that several test files use."""

from __future__ import annotations

from kernelgym_env.evaluation.protocols import Deadlines, Protocol, get_protocol
from kernelgym_env.tasks import Task

REFERENCE = """
import torch
from torch import nn

N = 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(N))

    def forward(self, x):
        return torch.clamp(x * self.w, -1, 1) + 0.5 * x.abs()


def get_inputs():
    return [torch.randn(64, N)]


def get_init_inputs():
    return []
"""

TASK = Task(id="Test/Clamp", source=REFERENCE)

RIGHT = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        return (x * self.w).clamp_(-1, 1).add_(x.abs(), alpha=0.5)
"""

CTYPES = """
import ctypes, os, subprocess, tempfile
import torch
from torch import nn

SOURCE = r'''
#include <cmath>
extern "C" void clamp(const float* x, const float* w, float* y, long rows, long n) {
    for (long i = 0; i < rows * n; ++i) {
        float t = x[i] * w[i % n];
        y[i] = (t < -1 ? -1 : t > 1 ? 1 : t) + 0.5f * std::fabs(x[i]);
    }
}
'''
folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", folder + "/k.so", folder + "/k.cpp"], check=True)
lib = ctypes.CDLL(folder + "/k.so")
lib.clamp.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2


def run(x, w):
    y = torch.empty_like(x)
    lib.clamp(x.data_ptr(), w.data_ptr(), y.data_ptr(), *x.shape)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))

    def forward(self, x):
        return run(x, self.w)
"""

QUICK: Protocol = get_protocol("strict").replace(
    library_ops="allow",
    min_blocks=3,
    max_blocks=4,
    budget_s=0.2,
    flush_cpu_mib=1,
    deadlines=Deadlines(import_s=4, build_s=60, first_call_s=4, run_s=4),
)


def task(body: str, inputs: str, init: str = "", name: str = "Test/Task") -> Task:
    """A task whose forward has the given body."""
    source = (
        "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n{init}\n"
        f"    def forward(self, *args):\n{body}\n\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    )
    return Task(id=name, source=source)


def copy_of(reference: Task) -> str:
    """The reference under the submission's name."""
    return reference.source.replace("class Model(", "class ModelNew(")
