"""One program per row: both sums, the divergence, then the gradient, each a pass over the two rows."""

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
def kernel(logits, ref_logits, weight, kl, gradient, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * VOCAB
    ref_logits += row * VOCAB
    gradient += row * VOCAB
    lanes = tl.arange(0, BLOCK)
    lse_p, lse_q = scan_row(logits, LOG2E, VOCAB, BLOCK), scan_row(ref_logits, LOG2E, VOCAB, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, VOCAB, BLOCK):
        at = start + lanes
        p = tl.load(logits + at, mask=at < VOCAB, other=float("-inf")).to(tl.float32) * LOG2E - lse_p
        q = tl.load(ref_logits + at, mask=at < VOCAB, other=float("-inf")).to(tl.float32) * LOG2E - lse_q
        total += tl.where(p > -1e30, tl.exp2(p) * (p - q) * LN2, 0.0)
    divergence = tl.sum(total, 0)
    tl.store(kl + row, divergence)
    w = tl.load(weight + row)
    for back in range(0, VOCAB, BLOCK):
        at = (VOCAB - 1) // BLOCK * BLOCK - back + lanes  # the end of the rows is still in the cache
        p = tl.load(logits + at, mask=at < VOCAB, other=float("-inf")).to(tl.float32) * LOG2E - lse_p
        q = tl.load(ref_logits + at, mask=at < VOCAB, other=float("-inf")).to(tl.float32) * LOG2E - lse_q
        g = tl.where(p > -1e30, w * tl.exp2(p) * ((p - q) * LN2 - divergence), 0.0)
        tl.store(gradient + at, g.to(gradient.dtype.element_ty), mask=at < VOCAB)


class ModelNew(nn.Module):
    def forward(self, logits, ref_logits, weight):
        logits, ref_logits, weight = logits.contiguous(), ref_logits.contiguous(), weight.contiguous()
        rows, vocab = logits.shape
        kl, gradient = torch.empty(rows, device=logits.device, dtype=torch.float32), torch.empty_like(logits)
        kernel[(rows,)](logits, ref_logits, weight, kl, gradient, VOCAB=vocab, BLOCK=BLOCK, num_warps=8)
        return kl, gradient
