import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"B": 256}), triton.Config({"B": 512})], key=["n"])
@triton.jit
def silu_mul(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    k = i < n
    a = tl.load(x + i, mask=k, other=0.0)
    tl.store(o + i, a / (1 + tl.exp(-a)) * tl.load(y + i, mask=k, other=0.0), mask=k)


class ModelNew(nn.Module):
    def forward(self, x, y):
        o = torch.empty_like(x)
        silu_mul[lambda m: (triton.cdiv(x.numel(), m["B"]),)](x, y, o, x.numel())
        return o
