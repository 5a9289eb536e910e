import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/extension.h>
torch::Tensor softmax_gelu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const long m = x.size(0), n = x.size(1);
    const float* a = x.data_ptr<float>(); float* o = y.data_ptr<float>();
    #pragma omp parallel for
    for (long i = 0; i < m; ++i) {
        float top = -INFINITY; double s = 0;
        for (long j = 0; j < n; ++j) { float v = a[i*n+j]; v = 0.5f * v * (1.f + std::erf(v * 0.70710678f)); o[i*n+j] = v; top = std::max(top, v); }
        for (long j = 0; j < n; ++j) { o[i*n+j] = std::exp(o[i*n+j] - top); s += o[i*n+j]; }
        for (long j = 0; j < n; ++j) o[i*n+j] /= s;
    }
    return y;
}
"""
_ext = load_inline("sg_ext", cpp_sources=[SRC], functions=["softmax_gelu"], extra_cflags=["-O3", "-fopenmp"], extra_ldflags=["-fopenmp"])


class ModelNew(nn.Module):
    def forward(self, x):
        return _ext.softmax_gelu(x)
