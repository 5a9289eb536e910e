"""L1/95 CrossEntropyLoss (class indices, mean) in CuPy: two raw CUDA kernels.

One block per row reads the logits once with 16-byte loads, keeping a running maximum and a running sum of exponentials
per thread; the pairs are joined by warp shuffles and shared memory, and loss = log(sum) + max - logit[target]. A second
kernel, one block, averages the row losses in a fixed order in fp64. Rows whose target is -100 (the default
ignore_index) count neither in the sum nor in the mean.
"""

import cupy
import numpy as np
import torch
from torch import nn

ROW_THREADS = 256
MEAN_THREADS = 1024

SOURCE = r"""
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

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
row_loss_kernel(const float* __restrict__ logits, const long long* __restrict__ targets, float* __restrict__ losses,
                int n_classes) {
    __shared__ float warp_max[ROW_THREADS / 32];
    __shared__ float warp_sum[ROW_THREADS / 32];
    const int tid = threadIdx.x;
    const float* row = logits + (long long)blockIdx.x * n_classes;
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
        const long long target = targets[blockIdx.x];
        float loss = 0.0f;
        if (target != -100) {
            loss = target >= 0 && target < n_classes ? logf(s) + m - row[target] : NOT_A_NUMBER;
        }
        losses[blockIdx.x] = loss;
    }
}

extern "C" __global__ void __launch_bounds__(MEAN_THREADS)
mean_kernel(const float* __restrict__ losses, const long long* __restrict__ targets, float* __restrict__ out,
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
"""

module = cupy.RawModule(code=SOURCE)
row_loss_kernel = module.get_function("row_loss_kernel")
mean_kernel = module.get_function("mean_kernel")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        n_rows, n_classes = predictions.shape
        if not (predictions.is_contiguous() and targets.is_contiguous()) or targets.dtype != torch.int64:
            raise ValueError("The inputs must be contiguous and the targets int64.")
        if n_classes % 4 or predictions.data_ptr() % 16:
            raise ValueError("The number of classes must be a multiple of 4 and the logits 16-byte aligned.")
        losses = torch.empty(n_rows, device=predictions.device, dtype=torch.float32)
        out = torch.empty((), device=predictions.device, dtype=torch.float32)
        logits_ptr, targets_ptr = np.uint64(predictions.data_ptr()), np.uint64(targets.data_ptr())
        losses_ptr, out_ptr = np.uint64(losses.data_ptr()), np.uint64(out.data_ptr())
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            row_loss_kernel((n_rows,), (ROW_THREADS,), (logits_ptr, targets_ptr, losses_ptr, np.int32(n_classes)))
            mean_kernel((1,), (MEAN_THREADS,), (losses_ptr, targets_ptr, out_ptr, np.int32(n_rows)))
        return out
