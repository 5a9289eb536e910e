"""Rows in chunks: the affine map of each chunk, what lies behind each chunk, then the scan within each."""

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
def prepare(
    rewards, values, done, last_value, decays, sums, gamma, decay, STEPS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there, place = at < STEPS, row * STEPS + at
    ahead = tl.load(values + place + 1, mask=at + 1 < STEPS, other=0.0)
    ahead = tl.where(at + 1 == STEPS, tl.load(last_value + row), ahead)
    going_on = 1.0 - tl.load(done + place, mask=there, other=0).to(tl.float32)
    reward, value = tl.load(rewards + place, mask=there, other=0.0), tl.load(values + place, mask=there, other=0.0)
    tl.store(decays + place, decay * going_on, mask=there)
    tl.store(sums + place, reward + gamma * going_on * ahead - value, mask=there)


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

    def forward(self, rewards, values, done, last_value):
        rewards, values, done = rewards.contiguous(), values.contiguous(), done.contiguous().view(torch.uint8)
        rows, steps = rewards.shape
        decays, sums = torch.empty_like(rewards), torch.empty_like(rewards)
        prepare[(rows, triton.cdiv(steps, BLOCK))](
            rewards, values, done, last_value, decays, sums, self.gamma, self.decay, STEPS=steps, BLOCK=BLOCK
        )
        return scanned(decays, sums, values)
