import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor gate(torch::Tensor x, torch::Tensor bias);"
SOURCE = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void gate_kernel(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ y,
                            int64_t n, int64_t columns) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) y[at] = fmaxf(x[at] + bias[at % columns], 0.0f) * x[at];
}

torch::Tensor gate(torch::Tensor x, torch::Tensor bias) {
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    gate_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), n, x.size(-1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
extension = load_inline("bias_gate", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["gate"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return extension.gate(x.contiguous(), self.bias)
