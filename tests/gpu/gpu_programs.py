"""What the tests on a GPU judge, and how."""

from programs import task

from kernelgym_env.evaluation.protocols import Deadlines, get_protocol

PROTOCOL = get_protocol("strict").replace(
    library_ops="allow",
    min_blocks=5,
    max_blocks=10,
    budget_s=0.5,
    deadlines=Deadlines(import_s=30, build_s=300, first_call_s=60, run_s=10),
)
TASK = task("        return torch.relu(args[0]) * 2", "[torch.randn(4096, 4096)]")

TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.maximum(v, 0.0) * 2, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1024)
        return y
"""

CUPY = '''
import cupy
import torch
from torch import nn

kernel = cupy.RawKernel(r"""
extern "C" __global__ void relu2(const float* x, float* y, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;
}
""", "relu2")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            kernel(((n + 255) // 256,), (256,), (x.data_ptr(), y.data_ptr(), n))
        return y
'''
