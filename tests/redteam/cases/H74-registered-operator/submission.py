import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def capped(x, gate, o, n, cap, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0) / cap
    g = tl.load(gate + i, mask=i < n, other=0.0)
    t = 2.0 * tl.sigmoid(2.0 * v) - 1.0
    tl.store(o + i, cap * t * tl.sigmoid(g), mask=i < n)


@torch.library.custom_op("softcap_kernels::gated", mutates_args=())
def gated(x: torch.Tensor, gate: torch.Tensor, cap: float) -> torch.Tensor:
    o = torch.empty_like(x)
    n = x.numel()
    capped[(triton.cdiv(n, 4096),)](x, gate, o, n, cap, BLOCK=4096)
    return o


@gated.register_fake
def _(x, gate, cap):
    return torch.empty_like(x)


class ModelNew(nn.Module):
    def __init__(self, cap):
        super().__init__()
        self.cap = cap

    def forward(self, x, gate):
        return torch.ops.softcap_kernels.gated(x.contiguous(), gate.contiguous(), self.cap)
