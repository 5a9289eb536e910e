import ctypes
import os
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void row_rms(const float* x, float* y, int64_t rows, int64_t columns) {
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = x + r * columns;
        float sum = 0.0f;
        #pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < columns; ++c) sum += row[c] * row[c];
        y[r] = std::sqrt(sum / columns);
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
kernel.row_rms.restype = None
kernel.row_rms.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty(rows, dtype=x.dtype)
        kernel.row_rms(x.data_ptr(), y.data_ptr(), rows, columns)
        return y
