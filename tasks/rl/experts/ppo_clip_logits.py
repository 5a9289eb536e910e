"""One program per row: log-probability, loss and its slope, then the gradient, backwards over the row."""

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
def kernel(
    logits, ids, temperature, old_logp, advantage, weight, loss, logp, gradient, low, high, dual,
    VOCAB: tl.constexpr, BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * VOCAB
    gradient += row * VOCAB
    inverse = 1.0 / tl.load(temperature + row)
    scale, token = LOG2E * inverse, tl.load(ids + row)
    lse = scan_row(logits, scale, VOCAB, BLOCK)
    lp = (tl.load(logits + token).to(tl.float32) * scale - lse) * LN2
    apart = lp - tl.load(old_logp + row)
    a, w = tl.load(advantage + row), tl.load(weight + row)
    ratio = tl.exp(tl.minimum(tl.maximum(apart, -20.0), 20.0))
    plain, clipped = -a * ratio, -a * tl.minimum(tl.maximum(ratio, 1.0 - low), 1.0 + high)
    value = tl.maximum(plain, clipped)
    capped = (a < 0.0) & (value > -a * dual)
    follows = (plain >= clipped) & (tl.abs(apart) <= 20.0) & (capped == 0)
    tl.store(loss + row, w * tl.where(capped, -a * dual, value))
    tl.store(logp + row, lp)
    on_logp = tl.where(follows, w * plain * inverse, 0.0)
    for back in range(0, VOCAB, BLOCK):
        at = (VOCAB - 1) // BLOCK * BLOCK - back + tl.arange(0, BLOCK)  # the end of the row is still in the cache
        y = tl.load(logits + at, mask=at < VOCAB, other=float("-inf")).to(tl.float32) * scale - lse
        g = on_logp * (tl.where(at == token, 1.0, 0.0) - tl.exp2(y))
        tl.store(gradient + at, g.to(gradient.dtype.element_ty), mask=at < VOCAB)


class ModelNew(nn.Module):
    def __init__(self, low, high, dual):
        super().__init__()
        self.bounds = low, high, dual

    def forward(self, logits, ids, temperature, old_logp, advantage, weight):
        logits, rows = logits.contiguous(), [v.contiguous() for v in (ids, temperature, old_logp, advantage, weight)]
        count, vocab = logits.shape
        loss, logp = torch.empty((2, count), device=logits.device, dtype=torch.float32).unbind()
        gradient = torch.empty_like(logits)
        kernel[(count,)](
            logits, *rows, loss, logp, gradient, *self.bounds, VOCAB=vocab, BLOCK=BLOCK, num_warps=8
        )
        return loss, logp, gradient
