"""Sums in tiles, loss and slope by row, the gradient of the logits in float32, and two products with it."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
ROWS, TOKENS, PART, SHARES = 64, 128, 64, 16  # of a tile: rows, tokens, summed at once; shares of the vocabulary


@triton.jit
def logits_of(
    hidden, head, row, token, rows, VOCAB: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, PART: tl.constexpr,
):
    """A tile of logits, to base 2. A bfloat16 number is a TF32 number too: products are exact, their sums float32."""
    result = tl.zeros((ROWS, TOKENS), tl.float32)
    for start in range(0, WIDTH, PART):
        at = start + tl.arange(0, PART)
        x = tl.load(
            hidden + row[:, None] * WIDTH + at[None, :], mask=(row < rows)[:, None] & (at < WIDTH)[None, :], other=0.0
        )
        w = tl.load(
            head + token[:, None].to(tl.int64) * WIDTH + at[None, :],
            mask=(token < VOCAB)[:, None] & (at < WIDTH)[None, :], other=0.0,
        )
        result = tl.dot(x.to(tl.float32), tl.trans(w.to(tl.float32)), result, input_precision="tf32")
    return result * LOG2E


@triton.jit
def partial_sums(
    hidden, head, tops, sums, rows, VOCAB: tl.constexpr, WIDTH: tl.constexpr, SHARE: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, PART: tl.constexpr,
):
    """Greatest logit and sum of exponentials of a share of the vocabulary."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    top, total = tl.full((ROWS,), -1e30, tl.float32), tl.zeros((ROWS,), tl.float32)
    for start in range(0, SHARE, TOKENS):
        token = tl.program_id(1) * SHARE + start + tl.arange(0, TOKENS)
        y = logits_of(hidden, head, row, token, rows, VOCAB, WIDTH, ROWS, TOKENS, PART)
        y = tl.where((token < VOCAB)[None, :], y, -1e30)
        greater = tl.maximum(top, tl.max(y, 1))
        part = tl.where((token < VOCAB)[None, :], tl.exp2(y - greater[:, None]), 0.0)
        total = total * tl.exp2(top - greater) + tl.sum(part, 1)
        top = greater
    place = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(tops + place, top, mask=row < rows)
    tl.store(sums + place, total, mask=row < rows)


@triton.jit
def logp_of(
    hidden, head, token, tops, sums, row, WIDTH: tl.constexpr, LANES: tl.constexpr, SHARES: tl.constexpr
):
    """Log-probability of a row's token, and the row's logarithm of the sum to base 2."""
    at, share = tl.arange(0, LANES), tl.arange(0, SHARES)
    x = tl.load(hidden + row * WIDTH + at, mask=at < WIDTH, other=0.0).to(tl.float32)
    w = tl.load(head + token * WIDTH + at, mask=at < WIDTH, other=0.0).to(tl.float32)
    top, total = tl.load(tops + row * SHARES + share), tl.load(sums + row * SHARES + share)
    peak = tl.max(top, 0)
    lse = peak + tl.log2(tl.sum(total * tl.exp2(top - peak), 0))
    return tl.sum(x * w, 0) - lse * LN2, lse


@triton.jit
def make_loss(
    hidden, head, ids, old_logp, advantage, weight, tops, sums, loss, slopes, lses, low, high,
    WIDTH: tl.constexpr, LANES: tl.constexpr, SHARES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logp, lse = logp_of(hidden, head, tl.load(ids + row), tops, sums, row, WIDTH, LANES, SHARES)
    apart = logp - tl.load(old_logp + row)
    a, w = tl.load(advantage + row), tl.load(weight + row)
    ratio = tl.exp(tl.minimum(tl.maximum(apart, -20.0), 20.0))
    plain, clipped = a * ratio, a * tl.minimum(tl.maximum(ratio, 1.0 - low), 1.0 + high)
    tl.store(loss + row, -w * tl.minimum(plain, clipped))
    tl.store(slopes + row, tl.where((plain <= clipped) & (tl.abs(apart) <= 20.0), -w * plain, 0.0))
    tl.store(lses + row, lse)


@triton.jit
def make_gradient(
    hidden, head, ids, slopes, lses, gradient, rows, VOCAB: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, PART: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    inside = row < rows
    y = logits_of(hidden, head, row, token, rows, VOCAB, WIDTH, ROWS, TOKENS, PART)
    p = tl.exp2(y - tl.load(lses + row, mask=inside, other=0.0)[:, None])
    chosen = tl.load(ids + row, mask=inside, other=-1)[:, None] == token[None, :]
    g = tl.load(slopes + row, mask=inside, other=0.0)[:, None] * (tl.where(chosen, 1.0, 0.0) - p)
    place = row[:, None].to(tl.int64) * VOCAB + token[None, :]
    tl.store(gradient + place, g, mask=inside[:, None] & (token < VOCAB)[None, :])


@triton.jit
def multiply(
    left, right, out, m, n, k, left_row, left_column, ROWS: tl.constexpr, TOKENS: tl.constexpr, PART: tl.constexpr
):
    """out = left @ right: left in float32 with any strides, right in bfloat16, three TF32 products for each float32."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    result = tl.zeros((ROWS, TOKENS), tl.float32)
    for start in range(0, k, PART):
        at = (start + tl.arange(0, PART)).to(tl.int64)
        one = tl.load(
            left + row[:, None] * left_row + at[None, :] * left_column,
            mask=(row < m)[:, None] & (at < k)[None, :], other=0.0,
        )
        two = tl.load(
            right + at[:, None] * n + column[None, :], mask=(at < k)[:, None] & (column < n)[None, :], other=0.0
        )
        result = tl.dot(one, two.to(tl.float32), result, input_precision="tf32x3")
    place = row[:, None] * n + column[None, :]
    tl.store(out + place, result, mask=(row < m)[:, None] & (column < n)[None, :])


class ModelNew(nn.Module):
    def __init__(self, vocab, width, low, high):
        super().__init__()
        self.bounds = low, high
        self.head = nn.Parameter((0.7 * width**-0.5 * torch.randn(vocab, width)).bfloat16())

    def forward(self, hidden, ids, old_logp, advantage, weight):
        hidden, head = hidden.contiguous(), self.head
        rows, width = hidden.shape
        vocab = head.shape[0]
        share = triton.cdiv(triton.cdiv(vocab, SHARES), TOKENS) * TOKENS
        sizes = {"VOCAB": vocab, "WIDTH": width, "ROWS": ROWS, "TOKENS": TOKENS, "PART": PART}
        lanes = triton.next_power_of_2(width)
        tops, sums = torch.empty((2, rows, SHARES), device=hidden.device, dtype=torch.float32).unbind()
        new = {"device": hidden.device, "dtype": torch.float32}
        loss, slopes, lses = torch.empty((3, rows), **new).unbind()
        gradient = torch.empty((rows, vocab), **new)
        of_hidden, of_head = torch.empty((rows, width), **new), torch.empty((vocab, width), **new)
        blocks = triton.cdiv(rows, ROWS)
        partial_sums[(blocks, SHARES)](hidden, head, tops, sums, rows, SHARE=share, **sizes)
        make_loss[(rows,)](
            hidden, head, ids, old_logp, advantage, weight, tops, sums, loss, slopes, lses, *self.bounds,
            WIDTH=width, LANES=lanes, SHARES=SHARES,
        )
        make_gradient[(blocks, triton.cdiv(vocab, TOKENS))](
            hidden, head, ids, slopes, lses, gradient, rows, **sizes
        )
        tile, columns = {"ROWS": ROWS, "TOKENS": 64, "PART": 32}, triton.cdiv(width, 64)
        multiply[(blocks, columns)](gradient, head, of_hidden, rows, width, vocab, vocab, 1, **tile)
        multiply[(triton.cdiv(vocab, ROWS), columns)](gradient, hidden, of_head, vocab, width, rows, 1, vocab, **tile)
        return loss, of_hidden, of_head
