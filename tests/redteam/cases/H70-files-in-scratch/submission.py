import ctypes
import logging
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void series(const float* x, const float* c, float* y, long n, long degree) {
    for (long i = 0; i < n; ++i) {
        const float v = std::tanh(x[i]);
        float before = 1.f, now = v, total = c[0] + c[1] * v;
        for (long k = 2; k <= degree; ++k) {
            const float next = 2.f * v * now - before;
            before = now;
            now = next;
            total += c[k] * now;
        }
        y[i] = total;
    }
}
"""
_folder = tempfile.mkdtemp(prefix="series_")
logging.basicConfig(filename=os.path.join(_folder, "build.log"), level=logging.INFO)
with open(os.path.join(_folder, "k.cpp"), "w") as _file:
    _file.write(SOURCE)
_command = ["g++", "-O3", "-shared", "-fPIC", os.path.join(_folder, "k.cpp"), "-o", os.path.join(_folder, "k.so")]
logging.info("%s", _command)
subprocess.run(_command, check=True)
_lib = ctypes.CDLL(os.path.join(_folder, "k.so"))


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(nn.Module):
    def __init__(self, degree):
        super().__init__()
        self.degree = degree
        path = os.path.join(_folder, "coefficients.txt")
        with open(path, "w") as file:
            file.write(" ".join(str(0.5 if k == 0 else 1 / (k + 1)) for k in range(degree + 1)))
        with open(path) as file:
            self.table = (ctypes.c_float * (degree + 1))(*map(float, file.read().split()))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        _lib.series(pointer(x), self.table, pointer(y), ctypes.c_long(x.numel()), ctypes.c_long(self.degree))
        return y
