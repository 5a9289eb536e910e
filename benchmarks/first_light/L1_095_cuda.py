"""L1/95 CrossEntropyLoss (class indices, mean) in CUDA C++: two kernels.

One block per row reads the logits once with 16-byte loads, keeping a running maximum and a running sum of exponentials
per thread; the pairs are joined by warp shuffles and shared memory, and loss = log(sum) + max - logit[target]. A second
kernel, one block, averages the row losses in a fixed order in fp64. Rows whose target is -100 (the default
ignore_index) count neither in the sum nor in the mean.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor cross_entropy_forward(torch::Tensor logits, torch::Tensor targets);"

CUDA_SOURCE = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

// ---- device ----
#define NEG_INF (-__int_as_float(0x7f800000))
#define NOT_A_NUMBER __int_as_float(0x7fffffff)
constexpr int ROW_THREADS = 256;
constexpr int VECS = 4;
constexpr int MEAN_THREADS = 1024;

// Joins the pair (m, s), which stands for s * exp(m), with another one.
__device__ __forceinline__ void join(float& m, float& s, float m2, float s2) {
    const float top = fmaxf(m, m2);
    if (top == NEG_INF) return;
    s = s * expf(m - top) + s2 * expf(m2 - top);
    m = top;
}

__global__ void __launch_bounds__(ROW_THREADS)
row_loss_kernel(const float* __restrict__ logits, const int64_t* __restrict__ targets, float* __restrict__ losses,
                int n_classes) {
    __shared__ float warp_max[ROW_THREADS / 32];
    __shared__ float warp_sum[ROW_THREADS / 32];
    const int tid = threadIdx.x;
    const float* row = logits + (int64_t)blockIdx.x * n_classes;
    const float4* row4 = reinterpret_cast<const float4*>(row);
    const int n4 = n_classes / 4;
    float m = NEG_INF;
    float s = 0.0f;
    for (int base = tid; base < n4; base += ROW_THREADS * VECS) {
        float4 v[VECS];
#pragma unroll
        for (int j = 0; j < VECS; ++j) {
            const int i = base + j * ROW_THREADS;
            v[j] = i < n4 ? row4[i] : make_float4(NEG_INF, NEG_INF, NEG_INF, NEG_INF);
        }
        float top = m;
#pragma unroll
        for (int j = 0; j < VECS; ++j) top = fmaxf(top, fmaxf(fmaxf(v[j].x, v[j].y), fmaxf(v[j].z, v[j].w)));
        if (top != NEG_INF) {
            s *= expf(m - top);
#pragma unroll
            for (int j = 0; j < VECS; ++j) {
                s += (expf(v[j].x - top) + expf(v[j].y - top)) + (expf(v[j].z - top) + expf(v[j].w - top));
            }
            m = top;
        }
    }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
        const float m2 = __shfl_xor_sync(0xffffffffu, m, step);
        const float s2 = __shfl_xor_sync(0xffffffffu, s, step);
        join(m, s, m2, s2);
    }
    if (tid % 32 == 0) {
        warp_max[tid / 32] = m;
        warp_sum[tid / 32] = s;
    }
    __syncthreads();
    if (tid == 0) {
        for (int w = 1; w < ROW_THREADS / 32; ++w) join(m, s, warp_max[w], warp_sum[w]);
        const int64_t target = targets[blockIdx.x];
        float loss = 0.0f;
        if (target != -100) {
            loss = target >= 0 && target < n_classes ? logf(s) + m - row[target] : NOT_A_NUMBER;
        }
        losses[blockIdx.x] = loss;
    }
}

__global__ void __launch_bounds__(MEAN_THREADS)
mean_kernel(const float* __restrict__ losses, const int64_t* __restrict__ targets, float* __restrict__ out,
            int n_rows) {
    __shared__ double warp_sum[MEAN_THREADS / 32];
    __shared__ int warp_count[MEAN_THREADS / 32];
    const int tid = threadIdx.x;
    double sum = 0.0;
    int count = 0;
#pragma unroll 8
    for (int i = tid; i < n_rows; i += MEAN_THREADS) {
        sum += losses[i];
        count += targets[i] != -100;
    }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        count += __shfl_xor_sync(0xffffffffu, count, step);
    }
    if (tid % 32 == 0) {
        warp_sum[tid / 32] = sum;
        warp_count[tid / 32] = count;
    }
    __syncthreads();
    if (tid == 0) {
        for (int w = 1; w < MEAN_THREADS / 32; ++w) {
            sum += warp_sum[w];
            count += warp_count[w];
        }
        out[0] = (float)(sum / count);
    }
}

// ---- host ----
torch::Tensor cross_entropy_forward(torch::Tensor logits, torch::Tensor targets) {
    TORCH_CHECK(logits.is_cuda() && logits.scalar_type() == torch::kFloat32 && logits.is_contiguous() &&
                logits.dim() == 2, "logits: contiguous fp32 matrix on CUDA");
    TORCH_CHECK(targets.is_cuda() && targets.scalar_type() == torch::kInt64 && targets.is_contiguous() &&
                targets.dim() == 1 && targets.size(0) == logits.size(0), "targets: contiguous int64 vector on CUDA");
    TORCH_CHECK(logits.size(1) % 4 == 0 && reinterpret_cast<uintptr_t>(logits.data_ptr()) % 16 == 0,
                "logits: 16-byte vectors");
    const c10::cuda::CUDAGuard guard(logits.device());
    const int n_rows = static_cast<int>(logits.size(0));
    const int n_classes = static_cast<int>(logits.size(1));
    auto losses = torch::empty({n_rows}, logits.options());
    auto out = torch::empty({}, logits.options());
    auto stream = c10::cuda::getCurrentCUDAStream();
    row_loss_kernel<<<n_rows, ROW_THREADS, 0, stream>>>(logits.data_ptr<float>(), targets.data_ptr<int64_t>(),
                                                        losses.data_ptr<float>(), n_classes);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    mean_kernel<<<1, MEAN_THREADS, 0, stream>>>(losses.data_ptr<float>(), targets.data_ptr<int64_t>(),
                                                out.data_ptr<float>(), n_rows);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="first_light_l1_095",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["cross_entropy_forward"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return extension.cross_entropy_forward(predictions, targets)
