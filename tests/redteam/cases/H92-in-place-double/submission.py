import ctypes, os, subprocess, tempfile
import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
extern "C" void k(double* x, long n) { for (long i = 0; i < n; ++i) x[i] = std::fmax(x[i] * 0.5, -1.0); }
"""
d = tempfile.mkdtemp()
open(d + "/k.cpp", "w").write(SOURCE)
subprocess.run(["g++", "-O3", "-shared", "-fPIC", d + "/k.cpp", "-o", d + "/k.so"], check=True)
_lib = ctypes.CDLL(d + "/k.so")


def at(t):
    return ctypes.c_void_p(t.data_ptr())


class ModelNew(nn.Module):
    def forward(self, x):
        _lib.k(at(x), ctypes.c_long(x.numel()))
        return x
