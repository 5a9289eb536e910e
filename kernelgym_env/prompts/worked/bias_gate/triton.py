import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gate_kernel(x_ptr, bias_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + at % columns, mask=inside, other=0.0)
    tl.store(y_ptr + at, tl.maximum(x + bias, 0.0) * x, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        gate_kernel[(triton.cdiv(n, 1024),)](x, self.bias, y, n, x.shape[-1], BLOCK=1024)
        return y
