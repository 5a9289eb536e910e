import ctypes
import os
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#include <algorithm>
#include <cstdint>

extern "C" void gate(const float* x, const float* bias, float* y, int64_t rows, int64_t columns) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        float* out = y + r * columns;
        for (int64_t c = 0; c < columns; ++c) out[c] = std::max(in[c] + bias[c], 0.0f) * in[c];
    }
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    cpp, library = os.path.join(folder, "kernel.cpp"), os.path.join(folder, "kernel.so")
    with open(cpp, "w") as file:
        file.write(source)
    subprocess.run(["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-o", library, cpp], check=True)
    return ctypes.CDLL(library)


kernel = build(SOURCE)
kernel.gate.restype = None
kernel.gate.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.shape[-1]
        kernel.gate(x.data_ptr(), self.bias.data_ptr(), y.data_ptr(), x.numel() // columns, columns)
        return y
