import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mish(x, s, o, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0) + tl.load(s + i % C, mask=i < n, other=0.0)
    w = tl.minimum(tl.maximum(v, -6.0), 6.0)
    e = 1.0 + tl.exp(w)
    f = 1.0 - 2.0 / (e * e + 1.0)
    tl.store(o + i, tl.where(v < -6.0, 0.0, w * f), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(cols) * 0.1)

    def forward(self, x):
        o = torch.empty_like(x)
        n = x.numel()
        mish[(triton.cdiv(n, 4096),)](x, self.shift, o, n, x.shape[1], BLOCK=4096)
        return o
