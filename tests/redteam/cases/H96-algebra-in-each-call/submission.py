import ctypes, os, subprocess, tempfile
import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void k(const float* x, const float* w, float* y, double* v, long m, long k, long n) { for (long j = 0; j < k; ++j) v[j] = 0; for (long i = 0; i < n; ++i) for (long j = 0; j < k; ++j) v[j] += w[i * k + j]; for (long i = 0; i < m; ++i) { double s = 0; for (long j = 0; j < k; ++j) s += x[i * k + j] * v[j]; y[i] = s; } }
"""
d = tempfile.mkdtemp()
open(d + "/k.cpp", "w").write(SOURCE)
subprocess.run(["g++", "-O3", "-shared", "-fPIC", d + "/k.cpp", "-o", d + "/k.so"], check=True)
_lib = ctypes.CDLL(d + "/k.so")


def at(t):
    return ctypes.c_void_p(t.data_ptr())


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k) / k**0.5)

    def forward(self, x):
        m, k = x.shape
        y, v = torch.empty(m, 1), torch.empty(k, dtype=torch.float64)
        _lib.k(at(x), at(self.weight), at(y), at(v), ctypes.c_long(m), ctypes.c_long(k), ctypes.c_long(self.weight.shape[0]))
        return y
