import cupy
import numpy as np
import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void row_rms(const float* x, float* y, long long columns) {
    __shared__ float shared[256];
    const float* row = x + (long long)blockIdx.x * columns;
    float sum = 0.0f;
    for (long long c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c] * row[c];
    shared[threadIdx.x] = sum;
    for (int step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = sqrtf(shared[0] / columns);
}
"""
kernel = cupy.RawKernel(SOURCE, "row_rms")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            kernel((rows,), (256,), (np.uint64(x.data_ptr()), np.uint64(y.data_ptr()), np.int64(columns)))
        return y
