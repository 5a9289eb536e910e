"""Sums of chunks, their running sum, then each draw finds its chunk and its place in the chunk; all in integers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

CHUNK = 4096


@triton.jit
def sum_chunk(priorities, sums, items, CHUNK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    tl.store(sums + tl.program_id(0), tl.sum(tl.load(priorities + at, mask=at < items, other=0), 0))


@triton.jit
def running(sums, chunks, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    total = tl.cumsum(tl.load(sums + lane, mask=lane < chunks, other=0), 0)
    tl.store(sums + lane, total, mask=lane < chunks)


@triton.jit
def draw(
    priorities, numbers, beta, sums, indices, weights, items, draws, chunks,
    CHUNK: tl.constexpr, LANES: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    total = tl.load(sums + chunks - 1)
    aim = (number * 65536 + tl.load(numbers + number)) * total // (draws.to(tl.int64) * 65536)
    lane = tl.arange(0, LANES)
    ends = tl.load(sums + lane, mask=lane < chunks, other=0)
    below = (lane < chunks) & (ends <= aim)
    chunk = tl.sum(below.to(tl.int64), 0)
    aim -= tl.max(tl.where(below, ends, 0), 0)
    place = tl.arange(0, CHUNK)
    priority = tl.load(priorities + chunk * CHUNK + place, mask=chunk * CHUNK + place < items, other=0)
    inside = tl.sum((tl.cumsum(priority, 0) <= aim).to(tl.int64), 0)
    chosen = tl.sum(tl.where(place == inside, priority, 0), 0).to(tl.float32)
    tl.store(indices + number, chunk * CHUNK + inside)
    tl.store(weights + number, tl.exp2(-tl.load(beta) * tl.log2(chosen * items / total.to(tl.float32))))


@triton.jit
def scale(weights, draws, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    weight = tl.load(weights + lane, mask=lane < draws, other=0.0)
    tl.store(weights + lane, weight / tl.max(weight, 0), mask=lane < draws)


class ModelNew(nn.Module):
    def forward(self, priorities, numbers, beta):
        priorities, numbers = priorities.contiguous(), numbers.contiguous()
        items, draws = priorities.shape[0], numbers.shape[0]
        chunks = triton.cdiv(items, CHUNK)
        lanes = triton.next_power_of_2(chunks)
        sums = torch.empty(chunks, device=priorities.device, dtype=torch.int64)
        indices = torch.empty_like(numbers)
        weights = torch.empty(draws, device=priorities.device, dtype=beta.dtype)
        sum_chunk[(chunks,)](priorities, sums, items, CHUNK=CHUNK)
        running[(1,)](sums, chunks, LANES=lanes)
        draw[(draws,)](
            priorities, numbers, beta, sums, indices, weights, items, draws, chunks, CHUNK=CHUNK, LANES=lanes
        )
        scale[(1,)](weights, draws, LANES=triton.next_power_of_2(draws))
        return indices, weights
