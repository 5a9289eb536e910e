import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sketch(x, s, w, o, M, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, D)
    a = tl.load(x + m[:, None] * D + k[None, :], mask=(m < M)[:, None], other=0.0) * tl.load(s + k)[None, :]
    b = tl.load(w + n[None, :] * D + k[:, None])
    v = tl.dot(a, b, input_precision="ieee")
    tl.store(o + m[:, None] * D + n[None, :], tl.maximum(v, 0.0), mask=(m < M)[:, None])


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.map = nn.Parameter(torch.empty(d, d))
        nn.init.xavier_uniform_(self.map)
        torch.manual_seed(1234)
        self.register_buffer("signs", torch.randint(0, 2, (d,)).float() * 2 - 1)

    def forward(self, x):
        x = x.contiguous()
        m, d = x.shape
        o = torch.empty_like(x)
        sketch[(triton.cdiv(m, 32), d // 32)](x, self.signs, self.map, o, m, D=d, BM=32, BN=32)
        return o
