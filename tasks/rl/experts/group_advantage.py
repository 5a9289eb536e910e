"""A tile of groups by samples in each program, two passes over registers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

GROUPS, MOST = 8, 32  # groups in a program; the greatest size of one


@triton.jit
def kernel(rewards, bounds, advantages, groups, EPS: tl.constexpr, GROUPS: tl.constexpr, MOST: tl.constexpr):
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    start = tl.load(bounds + group, mask=group < groups, other=0)
    size = tl.load(bounds + group + 1, mask=group < groups, other=0) - start
    place = tl.arange(0, MOST)
    there = place[None, :] < size[:, None]
    at = start[:, None] + place[None, :]
    first = tl.load(rewards + start, mask=size > 0, other=0.0)
    reward = tl.where(there, tl.load(rewards + at, mask=there, other=0.0) - first[:, None], 0.0)
    count = tl.maximum(size, 1).to(tl.float32)
    centred = tl.where(there, reward - (tl.sum(reward, 1) / count)[:, None], 0.0)
    std = tl.sqrt(tl.sum(centred * centred, 1) / tl.maximum(count - 1.0, 1.0))
    tl.store(advantages + at, centred / (std[:, None] + EPS), mask=there)


class ModelNew(nn.Module):
    def forward(self, rewards, bounds):
        rewards, groups = rewards.contiguous(), bounds.shape[0] - 1
        advantages = torch.empty_like(rewards)
        kernel[(triton.cdiv(groups, GROUPS),)](
            rewards, bounds, advantages, groups, EPS=1e-6, GROUPS=GROUPS, MOST=MOST, num_warps=2
        )
        return advantages
