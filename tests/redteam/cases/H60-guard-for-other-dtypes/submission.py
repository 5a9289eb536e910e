import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def shrink(x, k, o, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    m = tl.maximum(tl.abs(v) - tl.load(k + i % C, mask=i < n, other=0.0), 0.0)
    tl.store(o + i, tl.where(v > 0.0, m, -m), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.knee = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        if x.dtype is not torch.float32 or not x.is_contiguous():
            return torch.sign(x) * torch.relu(x.abs() - self.knee)
        o = torch.empty_like(x)
        n = x.numel()
        shrink[(triton.cdiv(n, 4096),)](x, self.knee, o, n, x.shape[-1], BLOCK=4096)
        return o
