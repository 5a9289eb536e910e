"""Generalised advantages of sequences of very different lengths that lie one behind the other.

rewards and values (TOKENS,), bounds (SEQUENCES + 1,) int64, bootstrap (SEQUENCES,) to advantages and targets (TOKENS,).

Conventions: sequence i has the tokens from bounds_i up to bounds_(i+1), which may be none; after its last token the
value is bootstrap_i, 0 for one that ended; A_t = delta_t + GAMMA LAMBDA A_(t+1) within a sequence; targets are A + V.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, SEQUENCES = 1048576, 512
GAMMA, LAMBDA = 1.0, 0.95


class Model(nn.Module):
    def __init__(self, gamma, lam):
        super().__init__()
        self.gamma, self.lam = gamma, lam

    def forward(self, rewards, values, bounds, bootstrap):
        tokens = torch.arange(rewards.shape[0], device=rewards.device)
        sequence = torch.searchsorted(bounds, tokens, right=True) - 1
        last = bounds[1:][sequence] - 1 == tokens
        ahead = torch.where(last, bootstrap[sequence], F.pad(values[1:], (0, 1)))
        advantages = rewards + self.gamma * ahead - values
        decay = self.gamma * self.lam * (~last).to(rewards.dtype)
        step = 1
        while step < rewards.shape[0]:  # after each pass a token has summed twice as many of those behind it
            advantages = advantages + decay * F.pad(advantages[step:], (0, step))
            decay = decay * F.pad(decay[step:], (0, step))
            step *= 2
        return advantages, advantages + values


def get_inputs():
    # Lengths by Zipf's law in random order: none, one token, and up to a good part of all.
    share = 1.0 / (1.0 + torch.randperm(SEQUENCES))
    empty, also_empty, single, another = torch.randperm(SEQUENCES)[:4].split(1)
    share[empty] = share[also_empty] = share[single] = share[another] = 0.0
    bounds = F.pad((share.double().cumsum(0) / share.sum() * (TOKENS - 2)).long(), (1, 0))
    number = torch.arange(SEQUENCES + 1)
    bounds = bounds + (number > single) + (number > another)
    bounds[-1] = TOKENS
    values = torch.randn(TOKENS).cumsum(0) * 0.05 + 0.3 * torch.randn(TOKENS)
    bootstrap = torch.randn(SEQUENCES) * (torch.rand(SEQUENCES) < 0.5)
    return [torch.randn(TOKENS), values, bounds, bootstrap]


def get_init_inputs():
    return [GAMMA, LAMBDA]
