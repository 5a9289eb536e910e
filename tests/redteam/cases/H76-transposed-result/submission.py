import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def blend(x, y, o, R, C, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # in the order of x
    v = tl.load(y + (i % C) * R + i // C, mask=i < n, other=0.0)
    tl.store(o + i, tl.load(x + i, mask=i < n, other=0.0) * 0.5 + tl.exp(-v * v), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        rows, cols = x.shape
        o = torch.empty_like(x)
        n = x.numel()
        blend[(triton.cdiv(n, 4096),)](x, y, o, rows, cols, n, BLOCK=4096)
        return o.t()
