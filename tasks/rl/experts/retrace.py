"""One program per row: the recursion as affine maps, scanned from the end."""

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
def kernel(
    action_values, state_values, rewards, behaviour_logp, target_logp, done, last_value, targets, gamma, lam,
    STEPS: tl.constexpr, BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offset = row * STEPS
    end = tl.load(last_value + row)
    carry = 0.0
    for back in range(0, STEPS, BLOCK):
        at = (STEPS - 1) // BLOCK * BLOCK - back + tl.arange(0, BLOCK)
        there, more = at < STEPS, at + 1 < STEPS
        apart = tl.load(target_logp + offset + at + 1, mask=more, other=0.0)
        apart -= tl.load(behaviour_logp + offset + at + 1, mask=more, other=0.0)
        c = tl.where(more, lam * tl.exp(tl.minimum(apart, 0.0)), 0.0)
        q = tl.load(action_values + offset + at + 1, mask=more, other=0.0)
        v = tl.where(more, tl.load(state_values + offset + at + 1, mask=more, other=0.0), end)
        discount = gamma * (1.0 - tl.load(done + offset + at, mask=there, other=0).to(tl.float32))
        own = tl.load(rewards + offset + at, mask=there, other=0.0) + discount * (v - c * q)
        factor, sum = tl.associative_scan(
            (tl.where(there, discount * c, 1.0), tl.where(there, own, 0.0)), 0, compose, reverse=True
        )
        target = factor * carry + sum
        carry = tl.sum(tl.where(at % BLOCK == 0, target, 0.0), 0)
        tl.store(targets + offset + at, target, mask=there)


class ModelNew(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.lam = gamma, lam

    def forward(self, action_values, state_values, rewards, behaviour_logp, target_logp, done, last_value):
        done = done.contiguous().view(torch.uint8)
        inputs = (action_values, state_values, rewards, behaviour_logp, target_logp, done, last_value)
        rows, steps = rewards.shape
        targets = torch.empty_like(rewards)
        block = triton.next_power_of_2(min(steps, BLOCK))
        kernel[(rows,)](
            *[value.contiguous() for value in inputs], targets, self.gamma, self.lam, STEPS=steps, BLOCK=block
        )
        return targets
