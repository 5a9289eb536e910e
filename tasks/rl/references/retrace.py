"""Retrace(lambda): targets for the values of the actions that were taken.

action_values, state_values, rewards, behaviour_logp and target_logp (ENVIRONMENTS, STEPS), done (ENVIRONMENTS, STEPS)
bool, last_value (ENVIRONMENTS,) to targets (ENVIRONMENTS, STEPS).

Conventions: with n_t = 1 - done_t and c = LAMBDA min(1, exp(target_logp - behaviour_logp)) the target is T_t = r_t +
GAMMA n_t (V_(t+1) + c_(t+1) (T_(t+1) - Q_(t+1))); V is the expected value under the target policy, Q that of the action
that was taken. After the last step V is last_value and there is no correction.
"""

import torch
import torch.nn as nn

ENVIRONMENTS, STEPS = 4096, 512
GAMMA, LAMBDA = 0.99, 0.95


class Model(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.lam = gamma, lam

    def forward(self, action_values, state_values, rewards, behaviour_logp, target_logp, done, last_value):
        discount = self.gamma * (~done).to(rewards.dtype)
        coefficient = self.lam * (target_logp - behaviour_logp).clamp(max=0.0).exp()
        ahead, targets = last_value, torch.empty_like(rewards)
        for step in reversed(range(rewards.shape[1])):
            target = rewards[:, step] + discount[:, step] * ahead
            targets[:, step] = target
            ahead = state_values[:, step] + coefficient[:, step] * (target - action_values[:, step])
        return targets


def get_inputs():
    state_values = torch.randn(ENVIRONMENTS, STEPS + 1).cumsum(dim=1) * 0.2
    last_value = state_values[:, -1].contiguous()
    state_values = state_values[:, :-1].contiguous()
    action_values = state_values + 0.5 * torch.randn(ENVIRONMENTS, STEPS)
    done = torch.rand(ENVIRONMENTS, STEPS) < 0.02
    first, last, always, never, equal, far = torch.randperm(ENVIRONMENTS)[:6].split(1)
    done[first, 0], done[last, -1], done[always], done[never] = True, True, True, False
    behaviour_logp, target_logp = -2.0 * torch.rand(2, ENVIRONMENTS, STEPS) - 0.05
    target_logp[equal] = behaviour_logp[equal]
    behaviour_logp[far, ::2] -= 100.0
    target_logp[far, 1::2] -= 100.0
    rewards = torch.randn(ENVIRONMENTS, STEPS)
    return [action_values, state_values, rewards, behaviour_logp, target_logp, done, last_value]


def get_init_inputs():
    return [GAMMA, LAMBDA]
