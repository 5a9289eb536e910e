"""L1/40 LayerNorm over 64 x 256 x 256 (16 rows of 4194304) in CuPy: three raw CUDA kernels.

16 rows cannot fill the GPU, so each row is cut into chunks of 8192. The first kernel writes every chunk's mean and
sum of squared deviations (two-pass, in registers), the second joins the chunks of a row (Chan's formula) into mean
and 1 / sqrt(var + eps), the third normalizes: each thread keeps four values of weight and bias and walks
over the rows.
"""

import cupy
import numpy as np
import torch
from torch import nn

THREADS = 256
CHUNK = 8192

SOURCE = r"""
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int VECS = 8;
constexpr int CHUNK = THREADS * VECS * 4;

// Sum over the block; every thread gets the same result.
__device__ __forceinline__ float block_sum(float value, float* shared) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int w = 1; w < WARPS; ++w) value += shared[w];
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
chunk_stats_kernel(const float* __restrict__ x, float* __restrict__ means, float* __restrict__ deviations, int n) {
    __shared__ float shared[WARPS];
    const int chunk = blockIdx.x;
    const int row = blockIdx.y;
    const int n_chunks = gridDim.x;
    const float4* row4 = reinterpret_cast<const float4*>(x + (long long)row * n);
    const int n4 = n / 4;
    const int first = chunk * (THREADS * VECS) + threadIdx.x;
    float4 v[VECS];
#pragma unroll
    for (int j = 0; j < VECS; ++j) {
        const int i = first + j * THREADS;
        v[j] = i < n4 ? row4[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < VECS; ++j) sum += (v[j].x + v[j].y) + (v[j].z + v[j].w);
    const int left = n - chunk * CHUNK;
    const float mean = block_sum(sum, shared) / (left < CHUNK ? left : CHUNK);
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < VECS; ++j) {
        if (first + j * THREADS < n4) {
            const float a = v[j].x - mean, b = v[j].y - mean, c = v[j].z - mean, d = v[j].w - mean;
            squares += (a * a + b * b) + (c * c + d * d);
        }
    }
    const float deviation = block_sum(squares, shared);
    if (threadIdx.x == 0) {
        means[row * n_chunks + chunk] = mean;
        deviations[row * n_chunks + chunk] = deviation;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
row_stats_kernel(const float* __restrict__ means, const float* __restrict__ deviations, float* __restrict__ stats,
                 int n, int n_chunks, float eps) {
    __shared__ float shared[WARPS];
    const int row = blockIdx.x;
    means += row * n_chunks;
    deviations += row * n_chunks;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n_chunks; i += THREADS) {
        const int left = n - i * CHUNK;
        sum += means[i] * ((float)(left < CHUNK ? left : CHUNK) / n);
    }
    const float mean = block_sum(sum, shared);
    float squares = 0.0f;
    for (int i = threadIdx.x; i < n_chunks; i += THREADS) {
        const int left = n - i * CHUNK;
        const float offset = means[i] - mean;
        squares += deviations[i] + (left < CHUNK ? left : CHUNK) * (offset * offset);
    }
    const float variance = block_sum(squares, shared) / n;
    if (threadIdx.x == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = 1.0f / sqrtf(variance + eps);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
normalize_kernel(const float4* __restrict__ x, const float4* __restrict__ weight, const float4* __restrict__ bias,
                 const float2* __restrict__ stats, float4* __restrict__ y, int n_rows, int n4) {
    const int column = blockIdx.x * THREADS + threadIdx.x;
    if (column >= n4) return;
    const float4 w = weight[column];
    const float4 b = bias[column];
#pragma unroll 4
    for (int row = 0; row < n_rows; ++row) {
        const long long i = (long long)row * n4 + column;
        const float4 v = __ldcs(x + i);
        const float mean = stats[row].x;
        const float rstd = stats[row].y;
        __stcs(y + i, make_float4((v.x - mean) * rstd * w.x + b.x, (v.y - mean) * rstd * w.y + b.y,
                                  (v.z - mean) * rstd * w.z + b.z, (v.w - mean) * rstd * w.w + b.w));
    }
}
"""

module = cupy.RawModule(code=SOURCE)
chunk_stats_kernel = module.get_function("chunk_stats_kernel")
row_stats_kernel = module.get_function("row_stats_kernel")
normalize_kernel = module.get_function("normalize_kernel")


def pointer(tensor: torch.Tensor) -> np.uint64:
    if not tensor.is_contiguous() or tensor.data_ptr() % 16:
        raise ValueError("Tensors must be contiguous and 16-byte aligned.")
    return np.uint64(tensor.data_ptr())


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = self.ln.weight.numel()
        if n % 4:
            raise ValueError("The normalized size must be a multiple of 4.")
        n_rows = x.numel() // n
        n_chunks = (n + CHUNK - 1) // CHUNK
        means = torch.empty((n_rows, n_chunks), device=x.device, dtype=torch.float32)
        deviations = torch.empty((n_rows, n_chunks), device=x.device, dtype=torch.float32)
        stats = torch.empty((n_rows, 2), device=x.device, dtype=torch.float32)
        y = torch.empty_like(x)
        n4 = n // 4
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            chunk_stats_kernel(
                (n_chunks, n_rows), (THREADS,), (pointer(x), pointer(means), pointer(deviations), np.int32(n))
            )
            row_stats_kernel(
                (n_rows,),
                (THREADS,),
                (
                    pointer(means),
                    pointer(deviations),
                    pointer(stats),
                    np.int32(n),
                    np.int32(n_chunks),
                    np.float32(self.ln.eps),
                ),
            )
            normalize_kernel(
                ((n4 + THREADS - 1) // THREADS,),
                (THREADS,),
                (
                    pointer(x),
                    pointer(self.ln.weight),
                    pointer(self.ln.bias),
                    pointer(stats),
                    pointer(y),
                    np.int32(n_rows),
                    np.int32(n4),
                ),
            )
        return y
