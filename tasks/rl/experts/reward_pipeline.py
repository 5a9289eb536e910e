"""Lanes are episodes: rewards and returns with their sums, squares about the mean, then the normalised returns."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def added_up(parts, programs, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    return tl.sum(tl.load(parts + lane, mask=lane < programs, other=0.0), 0)


@triton.jit
def make_returns(
    time, eager, compiled, correct, lengths, returns, counts, sums, rest, bonus, cap, gamma, episodes,
    TURNS: tl.constexpr, BLOCK: tl.constexpr,
):
    episode = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(lengths + episode, mask=episode < episodes, other=0)
    ahead, total = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for back in range(0, TURNS):
        turn = TURNS - 1 - back
        reached, at = turn < length, episode * TURNS + turn
        t = tl.load(time + at, mask=reached, other=1.0)
        base = tl.load(eager + at, mask=reached, other=1.0)
        beats = t < rest * base
        level = 1.0 + beats.to(tl.float32)
        level += (beats & (t < rest * tl.load(compiled + at, mask=reached, other=1.0))).to(tl.float32)
        reward = level + bonus * tl.minimum(base / t, cap)
        reward = tl.where(tl.load(correct + at, mask=reached, other=0) != 0, reward, -1.0)
        ahead = tl.where(reached, reward, 0.0) + gamma * ahead
        total += ahead
        tl.store(returns + at, ahead, mask=reached)
    tl.store(counts + tl.program_id(0), tl.sum(length, 0).to(tl.float32))
    tl.store(sums + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def square(
    returns, lengths, counts, sums, squares, episodes, programs,
    TURNS: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):
    mean = added_up(sums, programs, LANES) / tl.maximum(added_up(counts, programs, LANES), 1.0)
    episode = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(lengths + episode, mask=episode < episodes, other=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(0, TURNS):
        off = tl.load(returns + episode * TURNS + turn, mask=turn < length, other=mean) - mean
        total += tl.where(turn < length, off * off, 0.0)
    tl.store(squares + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def normalise(
    returns, lengths, counts, sums, squares, out, episodes, programs,
    EPS: tl.constexpr, TURNS: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
):
    count = tl.maximum(added_up(counts, programs, LANES), 1.0)
    mean = added_up(sums, programs, LANES) / count
    factor = 1.0 / (tl.sqrt(added_up(squares, programs, LANES) / count) + EPS)
    at = tl.program_id(0) * BLOCK * TURNS + tl.arange(0, BLOCK * TURNS)
    there = at < episodes * TURNS
    reached = there & (at % TURNS < tl.load(lengths + at // TURNS, mask=there, other=0))
    value = tl.load(returns + at, mask=reached, other=0.0)
    tl.store(out + at, tl.where(reached, (value - mean) * factor, 0.0), mask=there)


class ModelNew(nn.Module):
    def __init__(self, margin, bonus, cap, gamma):
        super().__init__()
        self.constants = 1.0 - margin, bonus, cap, gamma

    def forward(self, time, eager, compiled, correct, lengths):
        time, eager, compiled = time.contiguous(), eager.contiguous(), compiled.contiguous()
        correct = correct.contiguous().view(torch.uint8)
        episodes, turns = time.shape  # turns is a power of two
        programs = triton.cdiv(episodes, BLOCK)
        sizes, lanes = {"TURNS": turns, "BLOCK": BLOCK}, triton.next_power_of_2(programs)
        returns, out = torch.empty((2, episodes, turns), device=time.device, dtype=time.dtype).unbind()
        counts, sums, squares = torch.empty((3, programs), device=time.device, dtype=time.dtype).unbind()
        make_returns[(programs,)](
            time, eager, compiled, correct, lengths, returns, counts, sums, *self.constants, episodes, **sizes
        )
        square[(programs,)](returns, lengths, counts, sums, squares, episodes, programs, **sizes, LANES=lanes)
        normalise[(programs,)](
            returns, lengths, counts, sums, squares, out, episodes, programs, EPS=1e-8, **sizes, LANES=lanes
        )
        return out
