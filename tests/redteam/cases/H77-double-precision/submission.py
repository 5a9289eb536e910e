import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(x, m, s, C, W: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, W)
    v = tl.load(x + r * C + c, mask=c < C, other=0.0)
    mean = tl.sum(v, 0) / C
    d = tl.where(c < C, v - mean, 0.0)
    tl.store(m + r, mean)
    tl.store(s + r, tl.sqrt(tl.sum(d * d, 0) / C))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        m, s = x.new_empty(rows), x.new_empty(rows)
        moments[(rows,)](x, m, s, cols, W=triton.next_power_of_2(cols))
        return m, s
