"""GRPO's advantages: rewards normalised within groups of different sizes.

rewards (SAMPLES,), bounds (GROUPS + 1,) int64 to advantages (SAMPLES,).

Conventions: group i has the samples from bounds_i up to bounds_(i+1), at most MOST and perhaps none;
A = (r - mean) / (std + EPS) with the sum of squares divided by n - 1; a group of one sample, or of equal rewards, has
advantages of exactly 0.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

GROUPS, SIZE = 4096, 16
SAMPLES, MOST = GROUPS * SIZE, 2 * SIZE
EPS = 1e-6


class Model(nn.Module):
    def forward(self, rewards, bounds):
        start, count = bounds[:-1, None], (bounds[1:] - bounds[:-1])[:, None]
        place = torch.arange(MOST, device=rewards.device)
        valid = place < count
        group = torch.where(valid, rewards[(start + place).clamp(max=rewards.shape[0] - 1)], 0.0)
        # Measured from the first reward of the group, so that equal ones leave no rounding.
        group = torch.where(valid, group - group[:, :1], 0.0)
        centred = torch.where(valid, group - group.sum(dim=1, keepdim=True) / count.clamp(min=1), 0.0)
        std = (centred.square().sum(dim=1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
        advantages = centred / (std + EPS)
        samples = torch.arange(rewards.shape[0], device=rewards.device)
        owner = torch.searchsorted(bounds, samples, right=True) - 1
        return advantages[owner, samples - bounds[owner]]


def get_inputs():
    # Sizes in pairs about the mean, so that their sum is SAMPLES: none, one, twice the mean and all between.
    spread = torch.randint(0, SIZE, (GROUPS // 2,))
    spread[0], spread[1] = SIZE, SIZE - 1
    sizes = torch.cat([SIZE + spread, SIZE - spread])[torch.randperm(GROUPS)]
    bounds = F.pad(sizes.cumsum(0), (1, 0))
    owner = torch.searchsorted(bounds, torch.arange(SAMPLES), right=True) - 1
    middle, scale, kind = torch.randn(GROUPS), 0.3 + torch.rand(GROUPS), torch.rand(GROUPS)
    kind[torch.randperm(GROUPS)[:2]] = torch.tensor([0.0, 1.0])
    rewards = middle[owner] + scale[owner] * torch.randn(SAMPLES)
    rewards = torch.where(kind[owner] > 0.7, (rewards > 0).to(rewards.dtype), rewards)  # right or wrong
    return [torch.where(kind[owner] < 0.1, middle[owner], rewards), bounds]


def get_init_inputs():
    return []
