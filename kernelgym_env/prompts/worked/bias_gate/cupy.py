import cupy
import numpy as np
import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void gate(const float* x, const float* bias, float* y, long long n, long long columns) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) y[at] = fmaxf(x[at] + bias[at % columns], 0.0f) * x[at];
}
"""
kernel = cupy.RawKernel(SOURCE, "gate")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        pointers = [np.uint64(tensor.data_ptr()) for tensor in (x, self.bias, y)]
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            kernel(((n + 255) // 256,), (256,), (*pointers, np.int64(n), np.int64(x.shape[-1])))
        return y
