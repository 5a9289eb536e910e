import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_half(x, g, o, C, W: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, W)
    v = tl.load(x + r * C + c, mask=c < C, other=0.0).to(tl.float32)
    s = 1.0 / tl.sqrt(tl.sum(v * v, 0) / C + 1e-5)
    y = v * s * tl.load(g + c, mask=c < C, other=0.0).to(tl.float32)
    tl.store(o + r * C + c, y.to(tl.float16), mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.gain = nn.Parameter((torch.rand(cols) + 0.5).half())

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        o = torch.empty_like(x)
        rms_half[(rows,)](x, self.gain, o, cols, W=triton.next_power_of_2(cols))
        return o
