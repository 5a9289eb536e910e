import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void rows_dot(const float* x, const float* w, float* y, long rows, long k) {
    for (long r = 0; r < rows; ++r) {
        float s = 0.f;
        for (long i = 0; i < k; ++i) s += x[r * k + i] * w[i];
        y[r] = s;
    }
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


_lib = build(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.probe = nn.Parameter(torch.randn(k))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0])
        _lib.rows_dot(at(x), at(self.probe), at(y), ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]))
        return y
