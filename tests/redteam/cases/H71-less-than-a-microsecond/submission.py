import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void unit(const float* x, float* y, long n) {
    float s = 0.f;
    for (long i = 0; i < n; ++i) s += x[i] * x[i];
    s = 1.f / (std::sqrt(s) + 1e-6f);
    for (long i = 0; i < n; ++i) y[i] = x[i] * s;
}
"""


def build(source, *flags):
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "k.cpp"), "w") as file:
        file.write(source)
    library = os.path.join(folder, "k.so")
    command = ["g++", "-O3", "-shared", "-fPIC", os.path.join(folder, "k.cpp"), "-o", library, *flags]
    subprocess.run(command, check=True)
    return ctypes.CDLL(library)


def at(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


_unit = build(SOURCE).unit
_unit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        _unit(x.data_ptr(), y.data_ptr(), x.numel())
        return y
