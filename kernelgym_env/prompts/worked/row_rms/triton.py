import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + lanes
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        total += x * x
    tl.store(y_ptr + row, tl.sqrt(tl.sum(total, axis=0) / columns))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        rms_kernel[(rows,)](x, y, columns, BLOCK=1024)
        return y
