"""All tokens as one row in chunks; the end of a sequence is a decay of 0, so no chunk asks where sequences lie."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def compose(decay, sum, own_decay, own_sum):
    """What lies behind, then a step of its own: y becomes own_decay * y + own_sum."""
    return decay * own_decay, own_decay * sum + own_sum


@triton.jit
def mark_ends(bounds, bootstrap, ends, after, sequences, BLOCK: tl.constexpr):
    """Note at the last token of each sequence that it is one, and the value after it."""
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = number < sequences
    start = tl.load(bounds + number, mask=there, other=0)
    end = tl.load(bounds + number + 1, mask=there, other=0)
    there = there & (end > start)
    tl.store(ends + end - 1, 1, mask=there)
    tl.store(after + end - 1, tl.load(bootstrap + number, mask=there, other=0.0), mask=there)


@triton.jit
def prepare(rewards, values, ends, after, decays, sums, gamma, decay, tokens, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < tokens
    last = tl.load(ends + at, mask=there, other=1) != 0
    behind = tl.load(values + at + 1, mask=at + 1 < tokens, other=0.0)
    ahead = tl.where(last, tl.load(after + at, mask=there & last, other=0.0), behind)
    reward, value = tl.load(rewards + at, mask=there, other=0.0), tl.load(values + at, mask=there, other=0.0)
    tl.store(decays + at, tl.where(last, 0.0, decay), mask=there)
    tl.store(sums + at, reward + gamma * ahead - value, mask=there)


@triton.jit
def chunk_sums(decays, sums, chunk_decay, chunk_sum, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    """The affine map of each chunk of a row."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    at = chunk * BLOCK + lane
    there = at < LENGTH
    decay = tl.load(decays + row * LENGTH + at, mask=there, other=1.0)
    sum = tl.load(sums + row * LENGTH + at, mask=there, other=0.0)
    decay, sum = tl.associative_scan((decay, sum), 0, compose, reverse=True)
    place = row * tl.num_programs(1) + chunk
    tl.store(chunk_decay + place + lane, decay, mask=lane == 0)
    tl.store(chunk_sum + place + lane, sum, mask=lane == 0)


@triton.jit
def chunk_carries(chunk_decay, chunk_sum, carries, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    """What lies behind each chunk of a row, in place of what the chunk itself adds."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    there = chunk < CHUNKS
    decay = tl.load(chunk_decay + row * CHUNKS + chunk, mask=there, other=1.0)
    sum = tl.load(chunk_sum + row * CHUNKS + chunk, mask=there, other=0.0)
    decay, sum = tl.associative_scan((decay, sum), 0, compose, reverse=True)
    tl.store(carries + row * CHUNKS + chunk - 1, sum, mask=there & (chunk > 0))
    tl.store(carries + row * CHUNKS + chunk, 0.0, mask=chunk == CHUNKS - 1)


@triton.jit
def apply(decays, sums, carries, values, advantages, targets, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = chunk * BLOCK + tl.arange(0, BLOCK)
    there = at < LENGTH
    decay = tl.load(decays + row * LENGTH + at, mask=there, other=1.0)
    sum = tl.load(sums + row * LENGTH + at, mask=there, other=0.0)
    decay, sum = tl.associative_scan((decay, sum), 0, compose, reverse=True)
    advantage = decay * tl.load(carries + row * tl.num_programs(1) + chunk) + sum
    value = tl.load(values + row * LENGTH + at, mask=there, other=0.0)
    tl.store(advantages + row * LENGTH + at, advantage, mask=there)
    tl.store(targets + row * LENGTH + at, advantage + value, mask=there)


def scanned(decays, sums, values):
    """Sums over what lies behind, and with the values added; (rows, length) each."""
    rows, length = sums.shape
    advantages, targets = torch.empty_like(sums), torch.empty_like(sums)
    chunks = triton.cdiv(length, BLOCK)
    chunk_decay, chunk_sum, carries = torch.empty((3, rows, chunks), device=sums.device, dtype=sums.dtype).unbind()
    chunk_sums[(rows, chunks)](decays, sums, chunk_decay, chunk_sum, LENGTH=length, BLOCK=BLOCK)
    chunk_carries[(rows,)](chunk_decay, chunk_sum, carries, CHUNKS=chunks, BLOCK=triton.next_power_of_2(chunks))
    apply[(rows, chunks)](decays, sums, carries, values, advantages, targets, LENGTH=length, BLOCK=BLOCK)
    return advantages, targets


class ModelNew(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.decay = gamma, gamma * lam

    def forward(self, rewards, values, bounds, bootstrap):
        rewards, values = rewards.contiguous(), values.contiguous()
        tokens, sequences = rewards.shape[0], bootstrap.shape[0]
        ends = torch.zeros(tokens, device=rewards.device, dtype=torch.uint8)
        after, decays, sums = torch.empty((3, tokens), device=rewards.device, dtype=rewards.dtype).unbind()
        mark_ends[(triton.cdiv(sequences, BLOCK),)](bounds, bootstrap, ends, after, sequences, BLOCK=BLOCK)
        prepare[(triton.cdiv(tokens, BLOCK),)](
            rewards, values, ends, after, decays, sums, self.gamma, self.decay, tokens, BLOCK=BLOCK
        )
        advantages, targets = scanned(decays[None], sums[None], values[None])
        return advantages[0], targets[0]
