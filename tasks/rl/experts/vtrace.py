"""A scan of affine maps per row from its end for the values, then the advantages, which look one step ahead."""

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
def scan(
    behaviour_logp, target_logp, rewards, values, done, last_value, vs, gamma, rho_most, c_most,
    STEPS: tl.constexpr, BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offset = row * STEPS
    end = tl.load(last_value + row)
    carry = 0.0
    for back in range(0, STEPS, BLOCK):
        at = (STEPS - 1) // BLOCK * BLOCK - back + tl.arange(0, BLOCK)
        there = at < STEPS
        value = tl.load(values + offset + at, mask=there, other=0.0)
        ahead = tl.load(values + offset + at + 1, mask=at + 1 < STEPS, other=0.0)
        ahead = tl.where(at + 1 == STEPS, end, ahead)
        discount = gamma * (1.0 - tl.load(done + offset + at, mask=there, other=0).to(tl.float32))
        apart = tl.load(target_logp + offset + at, mask=there, other=0.0)
        apart -= tl.load(behaviour_logp + offset + at, mask=there, other=0.0)
        ratio = tl.exp(tl.minimum(apart, 20.0))
        reward = tl.load(rewards + offset + at, mask=there, other=0.0)
        delta = tl.minimum(ratio, rho_most) * (reward + discount * ahead - value)
        factor = tl.where(there, discount * tl.minimum(ratio, c_most), 1.0)
        factor, sum = tl.associative_scan((factor, tl.where(there, delta, 0.0)), 0, compose, reverse=True)
        trace = factor * carry + sum
        carry = tl.sum(tl.where(at % BLOCK == 0, trace, 0.0), 0)
        tl.store(vs + offset + at, trace + value, mask=there)


@triton.jit
def advance(
    behaviour_logp, target_logp, rewards, values, done, last_value, vs, advantages, gamma, rho_most, total,
    STEPS: tl.constexpr, BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < total
    last = at % STEPS == STEPS - 1
    end = tl.load(last_value + at // STEPS, mask=there & last, other=0.0)
    ahead = tl.load(vs + at + 1, mask=there & (last == 0), other=0.0) + end
    discount = gamma * (1.0 - tl.load(done + at, mask=there, other=0).to(tl.float32))
    apart = tl.load(target_logp + at, mask=there, other=0.0) - tl.load(behaviour_logp + at, mask=there, other=0.0)
    rho = tl.minimum(tl.exp(tl.minimum(apart, 20.0)), rho_most)
    reward, value = tl.load(rewards + at, mask=there, other=0.0), tl.load(values + at, mask=there, other=0.0)
    tl.store(advantages + at, rho * (reward + discount * ahead - value), mask=there)


class ModelNew(nn.Module):
    def __init__(self, gamma, rho, c):
        super().__init__()
        self.gamma, self.rho, self.c = gamma, rho, c

    def forward(self, behaviour_logp, target_logp, rewards, values, done, last_value):
        done = done.contiguous().view(torch.uint8)
        inputs = [v.contiguous() for v in (behaviour_logp, target_logp, rewards, values, done, last_value)]
        rows, steps = rewards.shape
        total = rows * steps
        vs, advantages = torch.empty((2, rows, steps), device=rewards.device, dtype=rewards.dtype).unbind()
        block = triton.next_power_of_2(min(steps, BLOCK))
        scan[(rows,)](*inputs, vs, self.gamma, self.rho, self.c, STEPS=steps, BLOCK=block)
        advance[(triton.cdiv(total, BLOCK),)](
            *inputs, vs, advantages, self.gamma, self.rho, total, STEPS=steps, BLOCK=BLOCK
        )
        return vs, advantages
