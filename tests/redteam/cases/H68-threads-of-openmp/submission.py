import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void nearest(const float* x, const float* c, float* y, long points, long centres, long d) {
    #pragma omp parallel for schedule(dynamic, 8) num_threads(2)
    for (long p = 0; p < points; ++p) {
        float best = 3.4e38f;
        for (long k = 0; k < centres; ++k) {
            float s = 0.f;
            for (long i = 0; i < d; ++i) {
                const float e = x[p * d + i] - c[k * d + i];
                s += e * e;
            }
            best = s < best ? s : best;
        }
        y[p] = -best;
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


_lib = build(SOURCE, "-fopenmp")


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(40, d))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[:2])
        k, d = self.centres.shape
        _lib.nearest(at(x), at(self.centres), at(y), ctypes.c_long(y.numel()), ctypes.c_long(k), ctypes.c_long(d))
        return y
