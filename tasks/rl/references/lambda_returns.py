"""Lambda returns with a discount of its own for each step, as in learning from a world model.

rewards, next_values and discounts (ROWS, STEPS) to returns (ROWS, STEPS).

Conventions: G_t = r_t + d_t ((1 - LAMBDA) V_(t+1) + LAMBDA G_(t+1)), where next_values_t is V_(t+1), the value after
step t, and d_t is 0 after an end; at the last step G_(t+1) is that value too.
"""

import torch
import torch.nn as nn

ROWS, STEPS = 4096, 512
LAMBDA = 0.95


class Model(nn.Module):
    def __init__(self, lam):
        super().__init__()
        self.lam = lam

    def forward(self, rewards, next_values, discounts):
        ahead, returns = next_values[:, -1], torch.empty_like(rewards)
        for step in reversed(range(rewards.shape[1])):
            mixed = (1.0 - self.lam) * next_values[:, step] + self.lam * ahead
            ahead = rewards[:, step] + discounts[:, step] * mixed
            returns[:, step] = ahead
        return returns


def get_inputs():
    next_values = torch.randn(ROWS, STEPS).cumsum(dim=1) * 0.2 + torch.randn(ROWS, 1)
    discounts = 0.97 + 0.03 * torch.rand(ROWS, STEPS)
    ends = torch.rand(ROWS, STEPS) < 0.02
    first, last, always, never = torch.randperm(ROWS)[:4].split(1)
    ends[first, 0], ends[last, -1], ends[always], ends[never] = True, True, True, False
    return [torch.randn(ROWS, STEPS), next_values, discounts.masked_fill(ends, 0.0)]


def get_init_inputs():
    return [LAMBDA]
