import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def fir(x, w, o, C, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(TAPS):
        total += tl.load(w + k) * tl.load(x + r * (C + TAPS - 1) + c + k, mask=c < C, other=0.0)
    tl.store(o + r * C + c, total, mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, taps):
        super().__init__()
        self.low = nn.Parameter(torch.randn(taps) / taps)
        self.high = nn.Parameter(torch.randn(taps))

    def forward(self, x):
        rows, cols = x.shape
        taps = self.low.numel()
        padded = F.pad(x, (taps - 1, 0)).contiguous()
        halves = []
        for w in (self.low, self.high):
            o = torch.empty(rows, 1, cols, device=x.device)
            fir[(rows, triton.cdiv(cols, 512))](padded, w, o, cols, TAPS=taps, BLOCK=512)
            halves.append(o)
        return torch.cat(halves, dim=1)
