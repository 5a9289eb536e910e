"""Generalised advantages of a few very long rows.

rewards and values (ENVIRONMENTS, STEPS), done (ENVIRONMENTS, STEPS) bool, last_value (ENVIRONMENTS,) to advantages and
targets (ENVIRONMENTS, STEPS).

Conventions: A_t = delta_t + GAMMA LAMBDA (1 - done_t) A_(t+1) with
delta_t = r_t + GAMMA (1 - done_t) V_(t+1) - V_t; after the last step the value is last_value; targets are A + V. The
decay is near 1 and ends are rare, so sums reach over thousands of steps.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ENVIRONMENTS, STEPS = 16, 131072
GAMMA, LAMBDA = 0.9995, 0.999


class Model(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.lam = gamma, lam

    def forward(self, rewards, values, done, last_value):
        going_on = (~done).to(rewards.dtype)
        ahead = torch.cat([values[:, 1:], last_value[:, None]], dim=1)
        advantages = rewards + self.gamma * going_on * ahead - values
        decay = self.gamma * self.lam * going_on
        step = 1
        while step < rewards.shape[1]:  # after each pass a step has summed twice as many of those behind it
            advantages = advantages + decay * F.pad(advantages[:, step:], (0, step))
            decay = decay * F.pad(decay[:, step:], (0, step))
            step *= 2
        return advantages, advantages + values


def get_inputs():
    values = torch.randn(ENVIRONMENTS, STEPS + 1).cumsum(dim=1) * 0.02
    done = torch.rand(ENVIRONMENTS, STEPS) < 4.0 / STEPS
    first, last, never = torch.randperm(ENVIRONMENTS)[:3].split(1)
    done[first, 0], done[last, -1], done[never] = True, True, False
    rewards = torch.randn(ENVIRONMENTS, STEPS)
    return [rewards, values[:, :-1].contiguous(), done, values[:, -1].contiguous()]


def get_init_inputs():
    return [GAMMA, LAMBDA]
