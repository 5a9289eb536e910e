"""One program per row: log-probability, entropy and loss, then the gradient, backwards over the row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
BLOCK = 8192


@triton.jit
def scan_row(logits, scale, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    """Logarithm of a row's sum of exponentials and mean logit, both to base 2; a maximum and two sums in each lane."""
    lanes = tl.arange(0, BLOCK)
    top, total = tl.full((BLOCK,), -1e30, tl.float32), tl.zeros((BLOCK,), tl.float32)
    weighted = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, VOCAB, BLOCK):
        at = start + lanes
        y = tl.load(logits + at, mask=at < VOCAB, other=float("-inf")).to(tl.float32) * scale
        y = tl.maximum(y, -1e30)  # minus infinity times 0 would be NaN
        shrink = tl.exp2(-tl.abs(y - top))
        total = tl.where(y > top, total * shrink + 1.0, total + shrink)
        weighted = tl.where(y > top, weighted * shrink + y, weighted + shrink * y)
        top = tl.maximum(top, y)
    peak = tl.max(top, 0)
    part = tl.exp2(top - peak)
    all = tl.sum(total * part, 0)
    return peak + tl.log2(all), tl.sum(weighted * part, 0) / all


@triton.jit
def kernel(
    logits, ids, old_logp, ref_logp, advantage, weight, loss, gradient, low, high, beta, bonus,
    VOCAB: tl.constexpr, BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * VOCAB
    gradient += row * VOCAB
    scale, token = LOG2E, tl.load(ids + row)
    lse, mean = scan_row(logits, scale, VOCAB, BLOCK)
    h = (lse - mean) * LN2
    lp = (tl.load(logits + token).to(tl.float32) * scale - lse) * LN2
    apart = lp - tl.load(old_logp + row)
    a, w = tl.load(advantage + row), tl.load(weight + row)
    ratio = tl.exp(tl.minimum(tl.maximum(apart, -20.0), 20.0))
    plain, clipped = a * ratio, a * tl.minimum(tl.maximum(ratio, 1.0 - low), 1.0 + high)
    far = tl.load(ref_logp + row) - lp
    d = tl.minimum(tl.maximum(far, -20.0), 20.0)
    k3 = tl.exp(d) - d - 1.0
    tl.store(loss + row, w * (beta * tl.minimum(k3, 10.0) - tl.minimum(plain, clipped) - bonus * h))
    slope = tl.where((plain <= clipped) & (tl.abs(apart) <= 20.0), -plain, 0.0)
    slope += tl.where((tl.abs(far) <= 20.0) & (k3 <= 10.0), beta * (1.0 - tl.exp(d)), 0.0)
    on_logp, on_entropy = w * slope, -w * bonus
    for back in range(0, VOCAB, BLOCK):
        at = (VOCAB - 1) // BLOCK * BLOCK - back + tl.arange(0, BLOCK)  # the end of the row is still in the cache
        y = tl.load(logits + at, mask=at < VOCAB, other=float("-inf")).to(tl.float32) * scale - lse
        p = tl.exp2(y)
        g = on_logp * (tl.where(at == token, 1.0, 0.0) - p) - on_entropy * p * (tl.maximum(y, -1e30) * LN2 + h)
        tl.store(gradient + at, g.to(gradient.dtype.element_ty), mask=at < VOCAB)


class ModelNew(nn.Module):
    def __init__(self, low, high, beta, bonus):
        super().__init__()
        self.constants = low, high, beta, bonus

    def forward(self, logits, ids, old_logp, ref_logp, advantage, weight):
        logits, rows = logits.contiguous(), [v.contiguous() for v in (ids, old_logp, ref_logp, advantage, weight)]
        count, vocab = logits.shape
        loss = torch.empty(count, device=logits.device, dtype=torch.float32)
        gradient = torch.empty_like(logits)
        kernel[(count,)](logits, *rows, loss, gradient, *self.constants, VOCAB=vocab, BLOCK=BLOCK, num_warps=8)
        return loss, gradient
