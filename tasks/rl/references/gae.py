"""Generalised advantages of rows of steps, and the values' targets.

rewards and values (ENVIRONMENTS, STEPS), done (ENVIRONMENTS, STEPS) bool, last_value (ENVIRONMENTS,) to advantages and
targets (ENVIRONMENTS, STEPS).

Conventions: A_t = delta_t + GAMMA LAMBDA (1 - done_t) A_(t+1) with
delta_t = r_t + GAMMA (1 - done_t) V_(t+1) - V_t; done_t says that the episode ended with step t, so the value after it
is 0; after the last step the value is last_value; targets are A + V, before any normalisation.
"""

import torch
import torch.nn as nn

ENVIRONMENTS, STEPS = 4096, 128
GAMMA, LAMBDA = 0.99, 0.95


class Model(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.lam = gamma, lam

    def forward(self, rewards, values, done, last_value):
        going_on = (~done).to(rewards.dtype)
        ahead = torch.cat([values[:, 1:], last_value[:, None]], dim=1)
        delta = rewards + self.gamma * going_on * ahead - values
        trace, advantages = torch.zeros_like(last_value), torch.empty_like(rewards)
        for step in reversed(range(rewards.shape[1])):
            trace = delta[:, step] + self.gamma * self.lam * going_on[:, step] * trace
            advantages[:, step] = trace
        return advantages, advantages + values


def get_inputs():
    # Values that wander, so that a trace that is cut short shows.
    values = torch.randn(ENVIRONMENTS, STEPS + 1).cumsum(dim=1) * 0.3 + torch.randn(ENVIRONMENTS, 1)
    done = torch.rand(ENVIRONMENTS, STEPS) < 0.02
    first, last, never, always = torch.randperm(ENVIRONMENTS)[:4].split(1)
    done[first, 0], done[last, -1], done[never], done[always] = True, True, False, True
    rewards = torch.randn(ENVIRONMENTS, STEPS)
    return [rewards, values[:, :-1].contiguous(), done, values[:, -1].contiguous()]


def get_init_inputs():
    return [GAMMA, LAMBDA]
