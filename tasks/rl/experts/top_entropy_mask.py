"""Selection by digits: the threshold's bits are found eight at a time from counts, then compared with."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def begin(lengths, state, sequences, ONE_IN: tl.constexpr, LANES: tl.constexpr):
    """The state: the threshold's bits found so far, and how many tokens are still to be kept among those alike."""
    lane = tl.arange(0, LANES)
    tokens = tl.sum(tl.load(lengths + lane, mask=lane < sequences, other=0), 0)
    tl.store(state, 0)
    tl.store(state + 1, tl.maximum((tokens + ONE_IN - 1) // ONE_IN, 1).to(tl.int32))


@triton.jit
def count(
    entropy, lengths, state, counts, total, SHIFT: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < total
    there = there & (at % LENGTH < tl.load(lengths + at // LENGTH, mask=there, other=0))
    # Numbers of at least 0 are in the order of their bits.
    bits = tl.load(entropy + at, mask=there, other=0.0).to(tl.int32, bitcast=True)
    if SHIFT < 24:
        there = there & ((bits >> (SHIFT + 8)) == (tl.load(state) >> (SHIFT + 8)))
    digit = tl.where(there, (bits >> SHIFT) & 255, 256)
    bins = tl.arange(0, 512)
    tl.atomic_add(counts + bins, tl.histogram(digit, 512), mask=bins < 256)


@triton.jit
def choose(state, counts, SHIFT: tl.constexpr):
    bins = tl.arange(0, 256)
    found = tl.load(counts + bins)
    from_here = tl.sum(found, 0) - tl.cumsum(found, 0) + found  # how many have this digit or a greater one
    wanted = tl.load(state + 1)
    digit = tl.sum((from_here >= wanted).to(tl.int32), 0) - 1
    above = tl.sum(tl.where(bins == digit, from_here - found, 0), 0)
    tl.store(state, tl.load(state) | (digit << SHIFT))
    tl.store(state + 1, wanted - above)
    tl.store(counts + bins, tl.zeros((256,), tl.int32))


@triton.jit
def mark(entropy, lengths, state, out, total, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = at % LENGTH < tl.load(lengths + at // LENGTH, mask=at < total, other=0)
    bits = tl.load(entropy + at, mask=at < total, other=0.0).to(tl.int32, bitcast=True)
    tl.store(out + at, (valid & (bits >= tl.load(state))).to(tl.uint8), mask=at < total)


class ModelNew(nn.Module):
    def forward(self, entropy, lengths):
        entropy = entropy.contiguous()
        sequences, length = entropy.shape
        total = sequences * length
        grid, sizes = (triton.cdiv(total, BLOCK),), {"LENGTH": length, "BLOCK": BLOCK}
        state = torch.empty(2, device=entropy.device, dtype=torch.int32)
        counts = torch.zeros(256, device=entropy.device, dtype=torch.int32)
        out = torch.empty((sequences, length), device=entropy.device, dtype=torch.bool)
        begin[(1,)](lengths, state, sequences, ONE_IN=5, LANES=triton.next_power_of_2(sequences))
        for shift in (24, 16, 8, 0):
            count[grid](entropy, lengths, state, counts, total, SHIFT=shift, **sizes)
            choose[(1,)](state, counts, SHIFT=shift)
        mark[grid](entropy, lengths, state, out.view(torch.uint8), total, **sizes)
        return out
