"""L1/23 Softmax over rows of 393216 in Triton: one program per row, two passes over the row.

The first pass keeps a running maximum and a running sum of exponentials in every lane (no cross-lane reduction inside
the loop); the lanes are joined once at the end. The second pass reads the row again and writes exp(x - max) / sum.
Row offsets are 64-bit.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 8192


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * n_columns
    y_row = y_ptr + row * n_columns
    lanes = tl.arange(0, BLOCK)

    lane_max = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    lane_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_columns, BLOCK):
        columns = start + lanes
        x = tl.load(x_row + columns, mask=columns < n_columns, other=-float("inf"))
        new_max = tl.maximum(lane_max, x)
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum = lane_sum * tl.exp(lane_max - shift) + tl.exp(x - shift)
        lane_max = new_max
    row_max = tl.max(lane_max, axis=0)
    row_sum = tl.sum(lane_sum * tl.exp(lane_max - row_max), axis=0)
    scale = 1.0 / row_sum

    for start in range(0, n_columns, BLOCK):
        columns = start + lanes
        mask = columns < n_columns
        x = tl.load(x_row + columns, mask=mask, other=-float("inf"))
        tl.store(y_row + columns, tl.exp(x - row_max) * scale, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() != 2 or not x.is_contiguous():
            raise ValueError("The input must be a contiguous matrix.")
        n_rows, n_columns = x.shape
        y = torch.empty_like(x)
        softmax_kernel[(n_rows,)](x, y, n_columns, BLOCK=BLOCK, num_warps=16)
        return y
