"""One program per row: a scan of affine maps from its end."""

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
    rewards, values, final_values, terminated, truncated, last_value, advantages, targets, gamma, decay,
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
        ended = tl.load(terminated + offset + at, mask=there, other=0) != 0
        cut = tl.load(truncated + offset + at, mask=there, other=0) != 0
        final = tl.load(final_values + offset + at, mask=there & cut, other=0.0)
        ahead = tl.where(ended, 0.0, tl.where(cut, final, ahead))
        delta = tl.load(rewards + offset + at, mask=there, other=0.0) + gamma * ahead - value
        factor = tl.where(there, tl.where(ended | cut, 0.0, decay), 1.0)
        factor, sum = tl.associative_scan((factor, tl.where(there, delta, 0.0)), 0, compose, reverse=True)
        advantage = factor * carry + sum
        carry = tl.sum(tl.where(at % BLOCK == 0, advantage, 0.0), 0)
        tl.store(advantages + offset + at, advantage, mask=there)
        tl.store(targets + offset + at, advantage + value, mask=there)


class ModelNew(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.decay = gamma, gamma * lam

    def forward(self, rewards, values, final_values, terminated, truncated, last_value):
        rewards, values, final_values = rewards.contiguous(), values.contiguous(), final_values.contiguous()
        terminated, truncated = (flags.contiguous().view(torch.uint8) for flags in (terminated, truncated))
        rows, steps = rewards.shape
        advantages, targets = torch.empty_like(rewards), torch.empty_like(rewards)
        kernel[(rows,)](
            rewards, values, final_values, terminated, truncated, last_value, advantages, targets,
            self.gamma, self.decay, STEPS=steps, BLOCK=triton.next_power_of_2(min(steps, BLOCK)),
        )
        return advantages, targets
