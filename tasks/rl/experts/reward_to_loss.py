"""Three launches: returns by a scan of each row, squares, loss and gradient; what rows add up to is summed anew."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def compose(decay, sum, own_decay, own_sum):
    """What lies behind, then a step of its own: y becomes own_decay * y + own_sum."""
    return decay * own_decay, own_decay * sum + own_sum


@triton.jit
def added_up(parts, rows, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    return tl.sum(tl.load(parts + lane, mask=lane < rows, other=0).to(tl.float32), 0)


@triton.jit
def scan_row(
    scores, old_logp, ref_logp, values, lengths, traces, returns, sums, beta, gamma, decay,
    LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offset, length, score = row * LENGTH, tl.load(lengths + row), tl.load(scores + row)
    carry, total = 0.0, tl.zeros((BLOCK,), tl.float32)
    for back in range(0, LENGTH, BLOCK):
        at = (LENGTH - 1) // BLOCK * BLOCK - back + tl.arange(0, BLOCK)
        there = at < length
        value = tl.load(values + offset + at, mask=there, other=0.0)
        ahead = tl.load(values + offset + at + 1, mask=at + 1 < length, other=0.0)
        apart = tl.load(old_logp + offset + at, mask=there, other=0.0)
        apart -= tl.load(ref_logp + offset + at, mask=there, other=0.0)
        reward = tl.where(at == length - 1, score, 0.0) - beta * apart
        own = tl.where(there, reward + gamma * ahead - value, 0.0)
        factor, sum = tl.associative_scan((tl.where(there, decay, 1.0), own), 0, compose, reverse=True)
        trace = tl.where(there, factor * carry + sum, 0.0)
        carry = tl.sum(tl.where(at % BLOCK == 0, trace, 0.0), 0)
        total += trace
        tl.store(traces + offset + at, trace, mask=at < LENGTH)
        tl.store(returns + offset + at, tl.where(there, trace + value, 0.0), mask=at < LENGTH)
    tl.store(sums + row, tl.sum(total, 0))


@triton.jit
def square_row(
    traces, lengths, sums, squares, rows, LENGTH: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    mean, length = added_up(sums, rows, LANES) / added_up(lengths, rows, LANES), tl.load(lengths + row)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        at = start + tl.arange(0, BLOCK)
        off = tl.where(at < length, tl.load(traces + row * LENGTH + at, mask=at < length, other=0.0) - mean, 0.0)
        total += off * off
    tl.store(squares + row, tl.sum(total, 0))


@triton.jit
def loss_row(
    logp, old_logp, traces, lengths, sums, squares, losses, gradient, advantages, clip, rows,
    EPS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    count, length = added_up(lengths, rows, LANES), tl.load(lengths + row)
    mean = added_up(sums, rows, LANES) / count
    factor = 1.0 / tl.sqrt(added_up(squares, rows, LANES) / (count - 1.0) + EPS)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        at = start + tl.arange(0, BLOCK)
        there, place = at < length, row * LENGTH + at
        a = tl.where(there, (tl.load(traces + place, mask=there, other=0.0) - mean) * factor, 0.0)
        apart = tl.load(logp + place, mask=there, other=0.0) - tl.load(old_logp + place, mask=there, other=0.0)
        ratio = tl.exp(apart)
        plain, clipped = a * ratio, a * tl.minimum(tl.maximum(ratio, 1.0 - clip), 1.0 + clip)
        total += tl.minimum(plain, clipped)
        tl.store(advantages + place, a, mask=at < LENGTH)
        tl.store(gradient + place, tl.where(there & (plain <= clipped), -plain / count, 0.0), mask=at < LENGTH)
    tl.store(losses + row, -tl.sum(total, 0) / count)


class ModelNew(nn.Module):
    def __init__(self, beta, gamma, lam, clip):
        super().__init__()
        self.rates, self.clip = (beta, gamma, gamma * lam), clip

    def forward(self, scores, logp, old_logp, ref_logp, values, lengths):
        logp, old_logp, ref_logp, values = (v.contiguous() for v in (logp, old_logp, ref_logp, values))
        rows, length = logp.shape
        sizes = {"LENGTH": length, "BLOCK": min(BLOCK, triton.next_power_of_2(length))}
        lanes = {"LANES": triton.next_power_of_2(rows)}
        traces, returns, advantages, gradient = (torch.empty_like(logp) for _ in range(4))
        sums, squares, losses = torch.empty((3, rows), device=logp.device, dtype=logp.dtype).unbind()
        scan_row[(rows,)](
            scores, old_logp, ref_logp, values, lengths, traces, returns, sums, *self.rates, **sizes
        )
        square_row[(rows,)](traces, lengths, sums, squares, rows, **sizes, **lanes)
        loss_row[(rows,)](
            logp, old_logp, traces, lengths, sums, squares, losses, gradient, advantages, self.clip, rows,
            EPS=1e-8, **sizes, **lanes,
        )
        return losses, gradient, advantages, returns
