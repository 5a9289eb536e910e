"""Generalised advantages where episodes may be cut off: no value after an end, one after a cut.

rewards, values and final_values (ENVIRONMENTS, STEPS), terminated and truncated (ENVIRONMENTS, STEPS) bool, last_value
(ENVIRONMENTS,) to advantages and targets (ENVIRONMENTS, STEPS).

Conventions, those of Gymnasium: after a terminated step the value is 0, also if it is truncated too; after a truncated
one it is final_values_t, the value of the observation that the reset replaced, which is read there alone; after the
last step it is last_value; else V_(t+1). The sum of A_t = delta_t + GAMMA LAMBDA A_(t+1) ends at both. Targets are A +
V.
"""

import torch
import torch.nn as nn

ENVIRONMENTS, STEPS = 8192, 512
GAMMA, LAMBDA = 0.99, 0.95


class Model(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.lam = gamma, lam

    def forward(self, rewards, values, final_values, terminated, truncated, last_value):
        ahead = torch.cat([values[:, 1:], last_value[:, None]], dim=1)
        ahead = torch.where(truncated, final_values, ahead).masked_fill(terminated, 0.0)
        delta = rewards + self.gamma * ahead - values
        decay = self.gamma * self.lam * (~(terminated | truncated)).to(rewards.dtype)
        trace, advantages = torch.zeros_like(last_value), torch.empty_like(rewards)
        for step in reversed(range(rewards.shape[1])):
            trace = delta[:, step] + decay[:, step] * trace
            advantages[:, step] = trace
        return advantages, advantages + values


def get_inputs():
    values = torch.randn(ENVIRONMENTS, STEPS + 1).cumsum(dim=1) * 0.2
    terminated, truncated = torch.rand(2, ENVIRONMENTS, STEPS) < 0.02
    first, last, cut, both, never = torch.randperm(ENVIRONMENTS)[:5].split(1)
    terminated[first, 0], terminated[last, -1], truncated[cut, -1] = True, True, True
    terminated[both, STEPS // 2] = truncated[both, STEPS // 2] = True
    terminated[never] = truncated[never] = False
    rewards, final_values = torch.randn(ENVIRONMENTS, STEPS), 2.0 * torch.randn(ENVIRONMENTS, STEPS)
    last_value = values[:, -1].contiguous()
    return [rewards, values[:, :-1].contiguous(), final_values, terminated, truncated, last_value]


def get_init_inputs():
    return [GAMMA, LAMBDA]
