import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.nn as nn

SOURCE = r"""
#include <cstring>
#include <cmath>
#include <pthread.h>
#include <atomic>
#include <unistd.h>
extern "C" void mm(const float* x, const float* w, const float* b, float* y, long m, long k, long n) {
    for (long i = 0; i < m; ++i) {
        float* o = y + i * n;
        for (long j = 0; j < n; ++j) o[j] = b[j];
        for (long p = 0; p < k; ++p) {
            const float a = x[i * k + p];
            const float* r = w + p * n;
            for (long j = 0; j < n; ++j) o[j] += a * r[j];
        }
        for (long j = 0; j < n; ++j) o[j] = o[j] > 0.f ? o[j] : 0.f;
    }
}

"""


def build(source, *flags):
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "k.cpp"), "w") as file:
        file.write(source)
    library = os.path.join(folder, "k.so")
    command = ["g++", "-O3", "-march=native", "-shared", "-fPIC", "-pthread", os.path.join(folder, "k.cpp"), "-o", library, *flags]
    subprocess.run(command, check=True)
    return ctypes.CDLL(library)


_lib = build(SOURCE)


def at(t):
    return ctypes.c_void_p(t.data_ptr())


def L(n):
    return ctypes.c_long(n)


def mm_into(x, w, b, y):
    _lib.mm(at(x), at(w), at(b), at(y), L(x.shape[0]), L(x.shape[1]), L(w.shape[1]))


def mm(x, w, b):
    y = torch.empty(x.shape[0], w.shape[1])
    mm_into(x, w, b, y)
    return y


class Base(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, n) / k**0.5)
        self.bias = nn.Parameter(torch.randn(n))


class ModelNew(Base):
    def forward(self, x):
        return mm(x, self.weight, self.bias)
