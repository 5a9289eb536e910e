"""Generalised advantages of many environments, time first, with flags for the starts of episodes.

rewards and values (STEPS, ENVIRONMENTS), starts (STEPS, ENVIRONMENTS) bool, last_value and last_start (ENVIRONMENTS,)
to advantages and returns (STEPS, ENVIRONMENTS).

Conventions, those of a rollout buffer: starts_t says that step t is the first of an episode, so that the episode before
ended with step t - 1; last_start says the same of what follows the last step. With n_t = 1 - starts_(t+1):
A_t = r_t + GAMMA n_t V_(t+1) - V_t + GAMMA LAMBDA n_t A_(t+1). Returns are A + V. The first row of starts has no
effect.
"""

import torch
import torch.nn as nn

STEPS, ENVIRONMENTS = 128, 65536
GAMMA, LAMBDA = 0.99, 0.95


class Model(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.lam = gamma, lam

    def forward(self, rewards, values, starts, last_value, last_start):
        trace, ahead, over = torch.zeros_like(last_value), last_value, last_start
        advantages = torch.empty_like(rewards)
        for step in reversed(range(rewards.shape[0])):
            going_on = (~over).to(rewards.dtype)
            delta = rewards[step] + self.gamma * going_on * ahead - values[step]
            trace = delta + self.gamma * self.lam * going_on * trace
            advantages[step] = trace
            ahead, over = values[step], starts[step]
        return advantages, advantages + values


def get_inputs():
    values = torch.randn(STEPS + 1, ENVIRONMENTS).cumsum(dim=0) * 0.3
    starts = torch.rand(STEPS + 1, ENVIRONMENTS) < 0.02
    first, last, never, always = torch.randperm(ENVIRONMENTS)[:4].split(1)
    starts[0, first], starts[-1, last], starts[:, never], starts[:, always] = True, True, False, True
    starts, last_start = starts[:-1].contiguous(), starts[-1].contiguous()
    return [torch.randn(STEPS, ENVIRONMENTS), values[:-1].contiguous(), starts, values[-1].contiguous(), last_start]


def get_init_inputs():
    return [GAMMA, LAMBDA]
