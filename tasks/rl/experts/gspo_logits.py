"""Three launches: log-probabilities by token, ratio and slope by sequence, gradient by token."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
BLOCK = 8192


@triton.jit
def scan_row(logits, scale, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    """Logarithm to base 2 of a row's sum of exponentials: each lane keeps a maximum and a sum, one exp2 per logit."""
    lanes = tl.arange(0, BLOCK)
    top, total = tl.full((BLOCK,), -1e30, tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, VOCAB, BLOCK):
        at = start + lanes
        y = tl.load(logits + at, mask=at < VOCAB, other=float("-inf")).to(tl.float32) * scale
        y = tl.maximum(y, -1e30)
        shrink = tl.exp2(-tl.abs(y - top))
        total = tl.where(y > top, total * shrink + 1.0, total + shrink)
        top = tl.maximum(top, y)
    peak = tl.max(top, 0)
    return peak + tl.log2(tl.sum(total * tl.exp2(top - peak), 0))


@triton.jit
def forward_row(logits, ids, lengths, logp, lses, LENGTH: tl.constexpr, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    """Log-probability of one token; a program beyond the length of its sequence has nothing to do."""
    row = tl.program_id(0).to(tl.int64)
    if row % LENGTH < tl.load(lengths + row // LENGTH):
        logits += row * VOCAB
        lse = scan_row(logits, LOG2E, VOCAB, BLOCK)
        chosen = tl.load(logits + tl.load(ids + row)).to(tl.float32) * LOG2E
        tl.store(logp + row, (chosen - lse) * LN2)
        tl.store(lses + row, lse)


@triton.jit
def backward_row(
    logits, ids, lengths, slopes, lses, gradient, LENGTH: tl.constexpr, VOCAB: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    sequence = row // LENGTH
    valid = row % LENGTH < tl.load(lengths + sequence)
    slope, lse = tl.load(slopes + sequence), tl.load(lses + row, mask=valid, other=0.0)
    token = tl.load(ids + row)
    logits += row * VOCAB
    gradient += row * VOCAB
    for start in range(0, VOCAB, BLOCK):
        at = start + tl.arange(0, BLOCK)
        y = tl.load(logits + at, mask=(at < VOCAB) & valid, other=0.0).to(tl.float32) * LOG2E - lse
        g = tl.where(valid, slope * (tl.where(at == token, 1.0, 0.0) - tl.exp2(y)), 0.0)
        tl.store(gradient + at, g.to(gradient.dtype.element_ty), mask=at < VOCAB)


@triton.jit
def by_sequence(
    logp, old_logp, lengths, advantage, weight, loss, slopes, low, high, LENGTH: tl.constexpr, BLOCK: tl.constexpr
):
    sequence = tl.program_id(0)
    length = tl.load(lengths + sequence)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        at = start + tl.arange(0, BLOCK)
        there = at < length
        new = tl.load(logp + sequence * LENGTH + at, mask=there, other=0.0)
        total += new - tl.load(old_logp + sequence * LENGTH + at, mask=there, other=0.0)
    tokens = tl.maximum(length, 1).to(tl.float32)
    mean = tl.sum(total, 0) / tokens
    a = tl.load(advantage + sequence)
    w = tl.where(length > 0, tl.load(weight + sequence), 0.0)
    ratio = tl.exp(tl.minimum(mean, 10.0))
    plain, clipped = ratio * a, tl.minimum(tl.maximum(ratio, 1.0 - low), 1.0 + high) * a
    tl.store(loss + sequence, -w * tl.minimum(plain, clipped))
    tl.store(slopes + sequence, tl.where((plain <= clipped) & (mean <= 10.0), -w * plain / tokens, 0.0))


class ModelNew(nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.bounds = low, high

    def forward(self, logits, ids, old_logp, lengths, advantage, weight):
        logits, ids, old_logp = logits.contiguous(), ids.contiguous(), old_logp.contiguous()
        sequences, length, vocab = logits.shape
        sizes = {"LENGTH": length, "VOCAB": vocab, "BLOCK": BLOCK}
        logp, lses = torch.empty((2, sequences, length), device=logits.device, dtype=torch.float32).unbind()
        loss, slopes = torch.empty((2, sequences), device=logits.device, dtype=torch.float32).unbind()
        gradient, grid = torch.empty_like(logits), (sequences * length,)
        forward_row[grid](logits, ids, lengths, logp, lses, **sizes, num_warps=8)
        by_sequence[(sequences,)](
            logp, old_logp, lengths, advantage, weight, loss, slopes, *self.bounds, LENGTH=length, BLOCK=256
        )
        backward_row[grid](logits, ids, lengths, slopes, lses, gradient, **sizes, num_warps=8)
        return loss, gradient
