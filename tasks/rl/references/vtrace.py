"""V-trace: corrected values and policy-gradient advantages from another policy's steps.

behaviour_logp, target_logp, rewards and values (ENVIRONMENTS, STEPS), done (ENVIRONMENTS, STEPS) bool, last_value
(ENVIRONMENTS,) to vs and advantages (ENVIRONMENTS, STEPS).

Conventions: with rho = min(RHO, ratio), c = min(C, ratio), ratio = exp(target_logp - behaviour_logp) and
n_t = 1 - done_t: vs_t - V_t = rho_t (r_t + GAMMA n_t V_(t+1) - V_t) + GAMMA n_t c_t (vs_(t+1) - V_(t+1)), and the
advantage is rho_t (r_t + GAMMA n_t vs_(t+1) - V_t), with the same bound RHO. After the last step V and vs are
last_value.
"""

import torch
import torch.nn as nn

ENVIRONMENTS, STEPS = 4096, 512
GAMMA, RHO, C = 0.99, 1.0, 0.9


class Model(nn.Module):
    def __init__(self, gamma, rho, c):
        super().__init__()
        self.gamma, self.rho, self.c = gamma, rho, c

    def forward(self, behaviour_logp, target_logp, rewards, values, done, last_value):
        discount = self.gamma * (~done).to(rewards.dtype)
        log_ratio = target_logp - behaviour_logp
        ratio = log_ratio.clamp(max=20.0).exp()  # far above both bounds, so that nothing overflows
        rho, c = ratio.clamp(max=self.rho), ratio.clamp(max=self.c)
        ahead = torch.cat([values[:, 1:], last_value[:, None]], dim=1)
        delta = rho * (rewards + discount * ahead - values)
        trace, traces = torch.zeros_like(last_value), torch.empty_like(rewards)
        for step in reversed(range(rewards.shape[1])):
            trace = delta[:, step] + discount[:, step] * c[:, step] * trace
            traces[:, step] = trace
        vs = values + traces
        vs_ahead = torch.cat([vs[:, 1:], last_value[:, None]], dim=1)
        return vs, rho * (rewards + discount * vs_ahead - values)


def get_inputs():
    values = torch.randn(ENVIRONMENTS, STEPS + 1).cumsum(dim=1) * 0.2
    done = torch.rand(ENVIRONMENTS, STEPS) < 0.02
    first, last, always, never, equal, far = torch.randperm(ENVIRONMENTS)[:6].split(1)
    done[first, 0], done[last, -1], done[always], done[never] = True, True, True, False
    behaviour_logp = -3.0 * torch.rand(ENVIRONMENTS, STEPS) - 0.05
    target_logp = -3.0 * torch.rand(ENVIRONMENTS, STEPS) - 0.05
    target_logp[equal] = behaviour_logp[equal]
    behaviour_logp[far, ::2] -= 100.0
    target_logp[far, 1::2] -= 100.0
    rewards = torch.randn(ENVIRONMENTS, STEPS)
    last_value = values[:, -1].contiguous()
    return [behaviour_logp, target_logp, rewards, values[:, :-1].contiguous(), done, last_value]


def get_init_inputs():
    return [GAMMA, RHO, C]
