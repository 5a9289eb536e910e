"""A known good kernel, judged after a case to see whether the case affected what follows.

- `PROBE_TASK`, `probe_source` -- its task, and its source for a kind of device.
"""

from __future__ import annotations

from kernelgym_env.tasks import Task

__all__ = ["PROBE_TASK", "probe_source"]

PROBE_TASK = Task(
    "RedTeam/Probe",
    """
import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 64 * SCALE, 512


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        return torch.relu(x * self.gain) + x


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
""",
)

_MODEL = """

class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        launch(x, self.gain, y)
        return y
"""

_CPU = '''
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = """
extern "C" void gain_relu(const float* x, const float* g, float* y, long rows, long cols) {
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < cols; ++c) {
            const float v = x[r * cols + c], s = v * g[c];
            y[r * cols + c] = (s > 0.f ? s : 0.f) + v;
        }
}
"""
folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
library = os.path.join(folder, "k.so")
subprocess.run(["g++", "-O3", "-shared", "-fPIC", os.path.join(folder, "k.cpp"), "-o", library], check=True)
kernel = ctypes.CDLL(library).gain_relu
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
kernel.restype = None


def launch(x, gain, y):
    kernel(x.data_ptr(), gain.data_ptr(), y.data_ptr(), *x.shape)
'''

_CUDA = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gain_relu(x, g, y, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    s = v * tl.load(g + i % cols, mask=i < n)
    tl.store(y + i, tl.maximum(s, 0.0) + v, mask=i < n)


def launch(x, gain, y):
    n = x.numel()
    gain_relu[(triton.cdiv(n, 1024),)](x, gain, y, n, x.shape[1], BLOCK=1024)
"""


def probe_source(kind: str) -> str:
    """The source of the probe's submission for ``cpu`` (C++) or ``cuda`` (Triton)."""
    return (_CPU if kind == "cpu" else _CUDA) + _MODEL
