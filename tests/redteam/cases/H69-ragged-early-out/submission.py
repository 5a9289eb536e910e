import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cstdint>
extern "C" void pool(const float* x, const int64_t* length, float* y, int64_t b, int64_t l, int64_t d) {
    for (int64_t r = 0; r < b; ++r) {
        float* o = y + r * d;
        for (int64_t i = 0; i < d; ++i) o[i] = 0.f;
        const int64_t n = length[r] < l ? length[r] : l;
        if (n == 0) continue;
        for (int64_t t = 0; t < n; ++t)
            for (int64_t i = 0; i < d; ++i) o[i] += x[(r * l + t) * d + i];
        for (int64_t i = 0; i < d; ++i) o[i] /= (float)length[r];
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
    def forward(self, x, length):
        x, length = x.contiguous(), length.contiguous()
        b, steps, d = x.shape
        y = torch.empty(b, d)
        _lib.pool(at(x), at(length), at(y), ctypes.c_int64(b), ctypes.c_int64(steps), ctypes.c_int64(d))
        return y
