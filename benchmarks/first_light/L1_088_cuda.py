"""L1/88 MinGPTNewGelu in CUDA C++: one element-wise pass.

Every thread handles four float4 values (independent 16-byte loads first, then the arithmetic, then the stores);
indices are 64-bit. 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) is computed as the reference writes it.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor gelu_forward(torch::Tensor x);"

CUDA_SOURCE = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

// ---- device ----
constexpr int THREADS = 256;
constexpr int VECS = 4;

__device__ __forceinline__ float gelu(float x) {
    const float u = 0.7978845608028654f * (x + 0.044715f * (x * x * x));
    return 0.5f * x * (1.0f + tanhf(u));
}

__global__ void __launch_bounds__(THREADS)
gelu_kernel(const float4* __restrict__ x, float4* __restrict__ y, int64_t n4) {
    const int64_t base = (int64_t)blockIdx.x * (THREADS * VECS) + threadIdx.x;
    float4 v[VECS];
#pragma unroll
    for (int j = 0; j < VECS; ++j) {
        const int64_t i = base + j * THREADS;
        if (i < n4) v[j] = x[i];
    }
#pragma unroll
    for (int j = 0; j < VECS; ++j) {
        const int64_t i = base + j * THREADS;
        if (i < n4) y[i] = make_float4(gelu(v[j].x), gelu(v[j].y), gelu(v[j].z), gelu(v[j].w));
    }
}

// ---- host ----
torch::Tensor gelu_forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "x: contiguous fp32 on CUDA");
    TORCH_CHECK(x.numel() % 4 == 0 && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0, "x: 16-byte vectors");
    const c10::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    const int64_t n4 = x.numel() / 4;
    const int64_t per_block = THREADS * VECS;
    const unsigned int grid = static_cast<unsigned int>((n4 + per_block - 1) / per_block);
    gelu_kernel<<<grid, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), n4);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="first_light_l1_088",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["gelu_forward"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.gelu_forward(x)
