"""L1/23 Softmax over rows of 393216 in CuPy: one block per row, two passes over the row.

The first pass reads the row with 16-byte loads and keeps a running maximum and a running sum of exponentials in every
thread; the pairs are joined by warp shuffles and shared memory. The second pass walks the row backwards, so that its
end may still be cached, and writes exp(x - max) / sum. Row offsets are 64-bit.
"""

import cupy
import numpy as np
import torch
from torch import nn

THREADS = 1024

SOURCE = r"""
#define NEG_INF (-__int_as_float(0x7f800000))
constexpr int THREADS = 1024;
constexpr int WARPS = THREADS / 32;
constexpr int VECS = 4;

// Joins the pair (m, s), which stands for s * exp(m), with another one.
__device__ __forceinline__ void join(float& m, float& s, float m2, float s2) {
    const float top = fmaxf(m, m2);
    if (top == NEG_INF) return;
    s = s * expf(m - top) + s2 * expf(m2 - top);
    m = top;
}

extern "C" __global__ void __launch_bounds__(THREADS)
softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int n_columns) {
    __shared__ float warp_max[WARPS];
    __shared__ float warp_sum[WARPS];
    const int tid = threadIdx.x;
    const int n4 = n_columns / 4;
    const float4* row = reinterpret_cast<const float4*>(x + (long long)blockIdx.x * n_columns);
    float4* out = reinterpret_cast<float4*>(y + (long long)blockIdx.x * n_columns);

    float m = NEG_INF;
    float s = 0.0f;
    for (int base = tid; base < n4; base += THREADS * VECS) {
        float4 v[VECS];
#pragma unroll
        for (int j = 0; j < VECS; ++j) {
            const int i = base + j * THREADS;
            v[j] = i < n4 ? row[i] : make_float4(NEG_INF, NEG_INF, NEG_INF, NEG_INF);
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
    m = warp_max[0];
    s = warp_sum[0];
    for (int w = 1; w < WARPS; ++w) join(m, s, warp_max[w], warp_sum[w]);
    const float scale = 1.0f / s;

    const int step = THREADS * VECS;
    for (int start = (n4 - 1) / step * step; start >= 0; start -= step) {
        float4 v[VECS];
#pragma unroll
        for (int j = 0; j < VECS; ++j) {
            const int i = start + j * THREADS + tid;
            if (i < n4) v[j] = __ldcs(row + i);
        }
#pragma unroll
        for (int j = 0; j < VECS; ++j) {
            const int i = start + j * THREADS + tid;
            if (i < n4) {
                __stcs(out + i, make_float4(expf(v[j].x - m) * scale, expf(v[j].y - m) * scale,
                                            expf(v[j].z - m) * scale, expf(v[j].w - m) * scale));
            }
        }
    }
}
"""

softmax_kernel = cupy.RawKernel(SOURCE, "softmax_kernel")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() != 2 or not x.is_contiguous() or x.shape[1] % 4 or x.data_ptr() % 16:
            raise ValueError("The input must be a contiguous, 16-byte aligned matrix with 4k columns.")
        n_rows, n_columns = x.shape
        y = torch.empty_like(x)
        args = (np.uint64(x.data_ptr()), np.uint64(y.data_ptr()), np.int32(n_columns))
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            softmax_kernel((n_rows,), (THREADS,), args)
        return y
