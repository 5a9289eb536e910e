import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_rows(x, o, C: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, C)
    v = tl.load(x + r * C + i)
    tl.store(o + r * C + i, tl.cumsum(v, 0) / (1.0 + tl.max(tl.abs(v), 0)))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        if cols & (cols - 1) == 0 and cols >= 2048:  # rows fit one block
            o = torch.empty_like(x)
            scan_rows[(rows,)](x, o, C=cols)
            return o
        return x.cumsum(-1).div_(x.abs().amax(-1, keepdim=True).add_(1))
