"""Three launches: tokens that count by sequence, then loss sums and gradient, then the two means."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def count_row(mask, counts, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    count = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        at = start + tl.arange(0, BLOCK)
        count += (tl.load(mask + row * LENGTH + at, mask=at < LENGTH, other=0) != 0).to(tl.float32)
    tl.store(counts + row, tl.sum(count, 0))


@triton.jit
def by_row(
    values, old_values, returns, mask, counts, gradient, sums, clips, clip, rows,
    LENGTH: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, LANES)
    tokens = tl.maximum(tl.sum(tl.load(counts + lane, mask=lane < rows, other=0.0), 0), 1.0)
    total, cut = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        at = start + tl.arange(0, BLOCK)
        place = row * LENGTH + at
        there = tl.load(mask + place, mask=at < LENGTH, other=0) != 0
        value = tl.load(values + place, mask=there, other=0.0)
        old = tl.load(old_values + place, mask=there, other=0.0)
        target = tl.load(returns + place, mask=there, other=0.0)
        off, moved = value - target, value - old
        near = tl.where(tl.abs(moved) <= clip, value, old + tl.minimum(tl.maximum(moved, -clip), clip)) - target
        plain, clipped = off * off, near * near
        total += tl.where(there, tl.maximum(plain, clipped), 0.0)
        cut += tl.where(there & (clipped > plain), 1.0, 0.0)
        tl.store(gradient + place, tl.where(there & (plain >= clipped), off / tokens, 0.0), mask=at < LENGTH)
    tl.store(sums + row, tl.sum(total, 0))
    tl.store(clips + row, tl.sum(cut, 0))


@triton.jit
def together(counts, sums, clips, loss, share, rows, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    there = lane < rows
    tokens = tl.maximum(tl.sum(tl.load(counts + lane, mask=there, other=0.0), 0), 1.0)
    tl.store(loss, 0.5 * tl.sum(tl.load(sums + lane, mask=there, other=0.0), 0) / tokens)
    tl.store(share, tl.sum(tl.load(clips + lane, mask=there, other=0.0), 0) / tokens)


class ModelNew(nn.Module):
    def __init__(self, clip):
        super().__init__()
        self.clip = clip

    def forward(self, values, old_values, returns, mask):
        values, old_values, returns = values.contiguous(), old_values.contiguous(), returns.contiguous()
        mask = mask.contiguous().view(torch.uint8)
        rows, length = values.shape
        lanes, gradient = triton.next_power_of_2(rows), torch.empty_like(values)
        sizes = {"LENGTH": length, "BLOCK": min(BLOCK, triton.next_power_of_2(length))}
        counts, sums, clips = torch.empty((3, rows), device=values.device, dtype=values.dtype).unbind()
        loss, share = torch.empty(2, device=values.device, dtype=values.dtype).unbind()
        count_row[(rows,)](mask, counts, **sizes)
        by_row[(rows,)](
            values, old_values, returns, mask, counts, gradient, sums, clips, self.clip, rows, **sizes, LANES=lanes
        )
        together[(1,)](counts, sums, clips, loss, share, rows, LANES=lanes)
        return loss, gradient, share
