"""L1/23 Softmax over rows of 393216 in CUDA C++: one cluster of 8 blocks per row, the row kept in registers.

8 blocks of 512 threads with 24 float4 values each hold exactly 8 * 512 * 24 * 4 = 393216 numbers, so that every
element is read once and written once. Each block replaces its part of the row by exp(x - block max) and sums it; the
blocks then exchange (max, sum) through distributed shared memory and scale by exp(block max - row max) / row sum.
Shorter rows leave lanes idle; longer ones are refused. Row offsets are 64-bit.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor softmax_forward(torch::Tensor x);"

CUDA_SOURCE = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>
#include <utility>

// ---- device ----
namespace cg = cooperative_groups;

#define NEG_INF (-__int_as_float(0x7f800000))
constexpr int BLOCKS = 8;  // blocks of one cluster
constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr int VECS = 24;

__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int n_columns) {
    __shared__ float warp_value[WARPS];
    __shared__ float block_max;
    __shared__ float block_sum;
    cg::cluster_group cluster = cg::this_cluster();
    const int rank = static_cast<int>(cluster.block_rank());
    const int tid = threadIdx.x;
    const int64_t offset = (int64_t)(blockIdx.x / BLOCKS) * n_columns;
    const float4* row = reinterpret_cast<const float4*>(x + offset);
    float4* out = reinterpret_cast<float4*>(y + offset);
    const int n4 = n_columns / 4;
    const int first = rank * (THREADS * VECS) + tid;

    float4 v[VECS];
#pragma unroll
    for (int j = 0; j < VECS; ++j) {
        const int i = first + j * THREADS;
        v[j] = i < n4 ? __ldcs(row + i) : make_float4(NEG_INF, NEG_INF, NEG_INF, NEG_INF);
    }

    float m = NEG_INF;
#pragma unroll
    for (int j = 0; j < VECS; ++j) m = fmaxf(m, fmaxf(fmaxf(v[j].x, v[j].y), fmaxf(v[j].z, v[j].w)));
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, step));
    if (tid % 32 == 0) warp_value[tid / 32] = m;
    __syncthreads();
    m = warp_value[0];
    for (int w = 1; w < WARPS; ++w) m = fmaxf(m, warp_value[w]);
    __syncthreads();

    const float shift = m == NEG_INF ? 0.0f : m;
    float s = 0.0f;
#pragma unroll
    for (int j = 0; j < VECS; ++j) {
        v[j] = make_float4(expf(v[j].x - shift), expf(v[j].y - shift), expf(v[j].z - shift), expf(v[j].w - shift));
        s += (v[j].x + v[j].y) + (v[j].z + v[j].w);
    }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) s += __shfl_xor_sync(0xffffffffu, s, step);
    if (tid % 32 == 0) warp_value[tid / 32] = s;
    __syncthreads();
    if (tid == 0) {
        for (int w = 1; w < WARPS; ++w) s += warp_value[w];
        block_max = m;
        block_sum = s;
    }
    cluster.sync();

    float row_max = NEG_INF;
    float row_sum = 0.0f;
    for (int b = 0; b < BLOCKS; ++b) row_max = fmaxf(row_max, *cluster.map_shared_rank(&block_max, b));
    for (int b = 0; b < BLOCKS; ++b) {
        row_sum += *cluster.map_shared_rank(&block_sum, b) * expf(*cluster.map_shared_rank(&block_max, b) - row_max);
    }
    auto token = cluster.barrier_arrive();  // this thread reads no other block's shared memory from here on
    const float scale = expf(m - row_max) / row_sum;
#pragma unroll
    for (int j = 0; j < VECS; ++j) {
        const int i = first + j * THREADS;
        if (i < n4) __stcs(out + i, make_float4(v[j].x * scale, v[j].y * scale, v[j].z * scale, v[j].w * scale));
    }
    cluster.barrier_wait(std::move(token));  // no block may end while another still reads its shared memory
}

// ---- host ----
torch::Tensor softmax_forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous() && x.dim() == 2,
                "x: contiguous fp32 matrix on CUDA");
    TORCH_CHECK(x.size(1) % 4 == 0 && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0, "x: 16-byte vectors");
    TORCH_CHECK(x.size(1) <= BLOCKS * THREADS * VECS * 4, "x: rows longer than one cluster's registers hold");
    const c10::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    const unsigned int grid = static_cast<unsigned int>(x.size(0) * BLOCKS);
    softmax_kernel<<<grid, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(x.size(1)));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="first_light_l1_023",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["softmax_forward"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.softmax_forward(x)
