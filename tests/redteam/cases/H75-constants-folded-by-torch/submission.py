import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_clip(x, a, b, o, n, C, L, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i // L % C
    v = tl.load(x + i, mask=i < n, other=0.0) * tl.load(a + c, mask=i < n) + tl.load(b + c, mask=i < n)
    tl.store(o + i, tl.minimum(tl.maximum(v, 0.0), 6.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(c) + 0.5)
        self.bias = nn.Parameter(torch.randn(c))
        self.register_buffer("mean", torch.randn(c))
        self.register_buffer("var", torch.rand(c) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        a = self.weight * torch.rsqrt(self.var + 1e-5)
        b = self.bias - self.mean * a
        o = torch.empty_like(x)
        n = x.numel()
        scale_clip[(triton.cdiv(n, 4096),)](x, a, b, o, n, x.shape[1], x.shape[2], BLOCK=4096)
        return o
