"""Logits in tiles that are never stored: a sum for each share of the vocabulary, then one program per row."""

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
def finish(
    hidden, head, ids, tops, sums, out, WIDTH: tl.constexpr, LANES: tl.constexpr, SHARES: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    logp, _ = logp_of(hidden, head, tl.load(ids + row), tops, sums, row, WIDTH, LANES, SHARES)
    tl.store(out + row, logp)


class ModelNew(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.weight = nn.Parameter((2.0 * width**-0.5 * torch.randn(vocab, width)).bfloat16())

    def forward(self, hidden, ids):
        hidden, weight = hidden.contiguous(), self.weight
        rows, width = hidden.shape
        vocab = weight.shape[0]
        share = triton.cdiv(triton.cdiv(vocab, SHARES), TOKENS) * TOKENS
        sizes = {"VOCAB": vocab, "WIDTH": width, "ROWS": ROWS, "TOKENS": TOKENS, "PART": PART}
        lanes = triton.next_power_of_2(width)
        tops, sums = torch.empty((2, rows, SHARES), device=hidden.device, dtype=torch.float32).unbind()
        out = torch.empty(rows, device=hidden.device, dtype=torch.float32)
        partial_sums[(triton.cdiv(rows, ROWS), SHARES)](hidden, weight, tops, sums, rows, SHARE=share, **sizes)
        finish[(rows,)](hidden, weight, ids, tops, sums, out, WIDTH=width, LANES=lanes, SHARES=SHARES)
        return out
