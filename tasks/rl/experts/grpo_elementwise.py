"""A program per sequence for loss sums and gradient, then one that puts the four losses together."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def by_sequence(
    logp, old_logp, ref_logp, advantage, lengths, gradient, sums, clips, low, high, beta, sequences,
    LENGTH: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    tokens = tl.maximum(tl.sum(tl.load(lengths + lane, mask=lane < sequences, other=0), 0), 1).to(tl.float32)
    length, a = tl.load(lengths + row), tl.load(advantage + row)
    total, cut = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        at = start + tl.arange(0, BLOCK)
        there, place = at < length, row * LENGTH + at
        lp = tl.load(logp + place, mask=there, other=0.0)
        apart = lp - tl.load(old_logp + place, mask=there, other=0.0)
        far = tl.load(ref_logp + place, mask=there, other=0.0) - lp
        ratio = tl.exp(tl.minimum(tl.maximum(apart, -20.0), 20.0))
        plain, clipped = a * ratio, a * tl.minimum(tl.maximum(ratio, 1.0 - low), 1.0 + high)
        d = tl.minimum(tl.maximum(far, -20.0), 20.0)
        loss = beta * (tl.exp(d) - d - 1.0) - tl.minimum(plain, clipped)
        slope = tl.where((plain <= clipped) & (tl.abs(apart) <= 20.0), -plain, 0.0)
        slope += tl.where(tl.abs(far) <= 20.0, beta * (1.0 - tl.exp(d)), 0.0)
        total += tl.where(there, loss, 0.0)
        cut += tl.where(there & (plain > clipped), 1.0, 0.0)
        tl.store(gradient + place, tl.where(there, slope / tokens, 0.0), mask=at < LENGTH)
    tl.store(sums + row, tl.sum(total, 0))
    tl.store(clips + row, tl.sum(cut, 0))


@triton.jit
def together(sums, clips, lengths, losses, share, sequences, LENGTH: tl.constexpr, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    there = lane < sequences
    length = tl.load(lengths + lane, mask=there, other=0).to(tl.float32)
    sum = tl.load(sums + lane, mask=there, other=0.0)
    tokens, total = tl.maximum(tl.sum(length, 0), 1.0), tl.sum(sum, 0)
    tl.store(losses, tl.sum(sum / tl.maximum(length, 1.0), 0) / sequences)
    tl.store(losses + 1, total / tokens)
    tl.store(losses + 2, total / LENGTH / sequences)
    tl.store(losses + 3, total / LENGTH)
    tl.store(share, tl.sum(tl.load(clips + lane, mask=there, other=0.0), 0) / tokens)


class ModelNew(nn.Module):
    def __init__(self, low, high, beta):
        super().__init__()
        self.constants = low, high, beta

    def forward(self, logp, old_logp, ref_logp, advantage, lengths):
        logp, old_logp, ref_logp = logp.contiguous(), old_logp.contiguous(), ref_logp.contiguous()
        rows, length = logp.shape
        lanes, gradient = triton.next_power_of_2(rows), torch.empty_like(logp)
        sums, clips = torch.empty((2, rows), device=logp.device, dtype=logp.dtype).unbind()
        losses = torch.empty(4, device=logp.device, dtype=logp.dtype)
        share = torch.empty((), device=logp.device, dtype=logp.dtype)
        by_sequence[(rows,)](
            logp, old_logp, ref_logp, advantage, lengths, gradient, sums, clips, *self.constants, rows,
            LENGTH=length, BLOCK=min(BLOCK, triton.next_power_of_2(length)), LANES=lanes,
        )
        together[(1,)](sums, clips, lengths, losses, share, rows, LENGTH=length, LANES=lanes)
        return losses, gradient, share
