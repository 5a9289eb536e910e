"""One program per row: both sums, the divergence, then the gradient, each a pass over the two rows."""

import math

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
def parts(student, teacher, at, lse_s, lse_t, log_rest, log_beta, VOCAB: tl.constexpr):
    """Both log-probabilities and that of the mixture, to base 2; what is beyond the row counts nothing."""
    s = tl.load(student + at, mask=at < VOCAB, other=-1e30).to(tl.float32) * LOG2E - lse_s
    t = tl.load(teacher + at, mask=at < VOCAB, other=-1e30).to(tl.float32) * LOG2E - lse_t
    one, two = s + log_rest, t + log_beta
    return s, t, tl.maximum(one, two) + tl.log2(1.0 + tl.exp2(-tl.abs(one - two)))


@triton.jit
def kernel(
    student, teacher, weight, out, gradient, beta, log_rest, log_beta, VOCAB: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    student += row * VOCAB
    teacher += row * VOCAB
    gradient += row * VOCAB
    lanes = tl.arange(0, BLOCK)
    lse_s, lse_t = scan_row(student, LOG2E, VOCAB, BLOCK), scan_row(teacher, LOG2E, VOCAB, BLOCK)
    of_student, of_teacher = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, VOCAB, BLOCK):
        s, t, m = parts(student, teacher, start + lanes, lse_s, lse_t, log_rest, log_beta, VOCAB)
        of_student += tl.exp2(s) * (s - m)
        of_teacher += tl.exp2(t) * (t - m)
    kl_s, kl_t = tl.sum(of_student, 0) * LN2, tl.sum(of_teacher, 0) * LN2
    tl.store(out + row, beta * kl_t + (1.0 - beta) * kl_s)
    w = tl.load(weight + row) * (1.0 - beta)
    for back in range(0, VOCAB, BLOCK):
        at = (VOCAB - 1) // BLOCK * BLOCK - back + lanes  # the end of the rows is still in the cache
        s, t, m = parts(student, teacher, at, lse_s, lse_t, log_rest, log_beta, VOCAB)
        g = w * tl.exp2(s) * ((s - m) * LN2 - kl_s)
        tl.store(gradient + at, g.to(gradient.dtype.element_ty), mask=at < VOCAB)


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.constants = beta, math.log2(1.0 - beta), math.log2(beta)

    def forward(self, student, teacher, weight):
        student, teacher, weight = student.contiguous(), teacher.contiguous(), weight.contiguous()
        rows, vocab = student.shape
        out, gradient = torch.empty(rows, device=student.device, dtype=torch.float32), torch.empty_like(student)
        kernel[(rows,)](
            student, teacher, weight, out, gradient, *self.constants, VOCAB=vocab, BLOCK=BLOCK, num_warps=8
        )
        return out, gradient
