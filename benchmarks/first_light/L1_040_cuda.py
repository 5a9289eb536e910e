"""L1/40 LayerNorm over 64 x 256 x 256 (16 rows of 4194304) in CUDA C++: three kernels.

16 rows cannot fill the GPU, so each row is cut into chunks of 8192. The first kernel writes every chunk's mean and
sum of squared deviations (two-pass, in registers), the second joins the chunks of a row (Chan's formula) into mean
and 1 / sqrt(var + eps), the third normalizes: each thread keeps four values of weight and bias and walks
over the rows.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor layer_norm_forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);"

CUDA_SOURCE = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

// ---- device ----
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

__global__ void __launch_bounds__(THREADS)
chunk_stats_kernel(const float* __restrict__ x, float* __restrict__ means, float* __restrict__ deviations, int n) {
    __shared__ float shared[WARPS];
    const int chunk = blockIdx.x;
    const int row = blockIdx.y;
    const int n_chunks = gridDim.x;
    const float4* row4 = reinterpret_cast<const float4*>(x + (int64_t)row * n);
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

__global__ void __launch_bounds__(THREADS)
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

__global__ void __launch_bounds__(THREADS)
normalize_kernel(const float4* __restrict__ x, const float4* __restrict__ weight, const float4* __restrict__ bias,
                 const float2* __restrict__ stats, float4* __restrict__ y, int n_rows, int n4) {
    const int column = blockIdx.x * THREADS + threadIdx.x;
    if (column >= n4) return;
    const float4 w = weight[column];
    const float4 b = bias[column];
#pragma unroll 4
    for (int row = 0; row < n_rows; ++row) {
        const int64_t i = (int64_t)row * n4 + column;
        const float4 v = __ldcs(x + i);
        const float mean = stats[row].x;
        const float rstd = stats[row].y;
        __stcs(y + i, make_float4((v.x - mean) * rstd * w.x + b.x, (v.y - mean) * rstd * w.y + b.y,
                                  (v.z - mean) * rstd * w.z + b.z, (v.w - mean) * rstd * w.w + b.w));
    }
}

// ---- host ----
static void check(const torch::Tensor& tensor, const char* name) {
    TORCH_CHECK(tensor.is_cuda() && tensor.scalar_type() == torch::kFloat32 && tensor.is_contiguous() &&
                reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 16 == 0,
                name, ": contiguous, 16-byte aligned fp32 on CUDA");
}

torch::Tensor layer_norm_forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    check(x, "x");
    check(weight, "weight");
    check(bias, "bias");
    const int64_t size = weight.numel();
    TORCH_CHECK(size % 4 == 0 && size < (int64_t{1} << 31) && bias.numel() == size && x.numel() % size == 0,
                "unsupported normalized size");
    const c10::cuda::CUDAGuard guard(x.device());
    const int n = static_cast<int>(size);
    const int n_rows = static_cast<int>(x.numel() / size);
    const int n_chunks = (n - 1) / CHUNK + 1;
    auto means = torch::empty({n_rows, n_chunks}, x.options());
    auto deviations = torch::empty({n_rows, n_chunks}, x.options());
    auto stats = torch::empty({n_rows, 2}, x.options());
    auto y = torch::empty_like(x);
    auto stream = c10::cuda::getCurrentCUDAStream();
    chunk_stats_kernel<<<dim3(n_chunks, n_rows), THREADS, 0, stream>>>(
        x.data_ptr<float>(), means.data_ptr<float>(), deviations.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    row_stats_kernel<<<n_rows, THREADS, 0, stream>>>(means.data_ptr<float>(), deviations.data_ptr<float>(),
                                                     stats.data_ptr<float>(), n, n_chunks, static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    const int n4 = n / 4;
    normalize_kernel<<<(n4 + THREADS - 1) / THREADS, THREADS, 0, stream>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()),
        reinterpret_cast<const float4*>(weight.data_ptr<float>()),
        reinterpret_cast<const float4*>(bias.data_ptr<float>()),
        reinterpret_cast<const float2*>(stats.data_ptr<float>()),
        reinterpret_cast<float4*>(y.data_ptr<float>()), n_rows, n4);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="first_light_l1_040",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["layer_norm_forward"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.layer_norm_forward(x, self.ln.weight, self.ln.bias, self.ln.eps)
