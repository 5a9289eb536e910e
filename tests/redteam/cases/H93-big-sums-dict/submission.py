import ctypes, os, subprocess, tempfile
import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void k(const float* x, float* s, float* c, double* t, long m, long n) { double a = 0; for (long j = 0; j < n; ++j) t[j] = 0; for (long i = 0; i < m; ++i) for (long j = 0; j < n; ++j) t[j] += x[i * n + j]; for (long j = 0; j < n; ++j) { a += t[j]; c[j] = t[j] / m; } *s = a; }
"""
d = tempfile.mkdtemp()
open(d + "/k.cpp", "w").write(SOURCE)
subprocess.run(["g++", "-O3", "-shared", "-fPIC", d + "/k.cpp", "-o", d + "/k.so"], check=True)
_lib = ctypes.CDLL(d + "/k.so")


def at(t):
    return ctypes.c_void_p(t.data_ptr())


class ModelNew(nn.Module):
    def forward(self, x):
        m, n = x.shape
        s, c, t = torch.empty(()), torch.empty(n), torch.empty(n, dtype=torch.float64)
        _lib.k(at(x), at(s), at(c), at(t), ctypes.c_long(m), ctypes.c_long(n))
        return {'columns': c.view(8, -1).t(), 'sum': s}
