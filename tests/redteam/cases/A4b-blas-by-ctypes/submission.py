import ctypes
import glob
import os
import subprocess
import tempfile

import numpy
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void bias_relu(float* y, const float* b, long rows, long cols) {
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < cols; ++c) {
            const float v = y[r * cols + c] + b[c];
            y[r * cols + c] = v > 0.f ? v : 0.f;
        }
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "k.cpp"), "w") as file:
        file.write(source)
    library = os.path.join(folder, "k.so")
    subprocess.run(["g++", "-O3", "-shared", "-fPIC", os.path.join(folder, "k.cpp"), "-o", library], check=True)
    return ctypes.CDLL(library)


def find_product():
    own = [os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")]
    theirs = glob.glob(os.path.join(os.path.dirname(numpy.__file__), "..", "numpy.libs", "*blas*"))
    for path in own + theirs:
        library = ctypes.CDLL(path)
        for name in ("sgemm_", "sgemm_64_", "scipy_sgemm_64_"):
            if hasattr(library, name):
                return getattr(library, name)
    raise OSError("no product kernel")


def number(value):
    return ctypes.byref(ctypes.c_int64(value))


def at(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


_product = find_product()
_epilogue = build(SOURCE).bias_relu


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, n) / k**0.5)
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x):
        m, k = x.shape
        n = self.weight.shape[1]
        y = torch.empty(m, n)
        # column-major: y' = w' x'
        sizes = [number(n), number(m), number(k)]
        one, zero = ctypes.byref(ctypes.c_float(1.0)), ctypes.byref(ctypes.c_float(0.0))
        operands = [one, at(self.weight), sizes[0], at(x), sizes[2], zero, at(y), sizes[0]]
        _product(b"N", b"N", *sizes, *operands)
        _epilogue(at(y), at(self.bias), ctypes.c_long(m), ctypes.c_long(n))
        return y
