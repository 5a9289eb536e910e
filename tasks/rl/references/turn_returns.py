"""Returns of the tokens of conversations, discounted once per turn and not per token.

rewards (SEQUENCES, LENGTH), turns (SEQUENCES, LENGTH) int64, acted (SEQUENCES, LENGTH) bool, lengths (SEQUENCES,) int64
to returns (SEQUENCES, LENGTH).

Conventions: within the first `lengths` tokens the return of token t is the sum over i >= t of
GAMMA^(turns_i - turns_t) r_i, for rewards at any token, acted or not. turns never falls along a sequence; a turn may
have no token. Only acted tokens have a return; at the others, what tools said and padding, it is 0. Rewards beyond a
length do not count.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

SEQUENCES, LENGTH = 128, 8192
TURNS = 32
GAMMA = 0.4


class Model(nn.Module):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma

    def forward(self, rewards, turns, acted, lengths):
        valid = torch.arange(rewards.shape[1], device=rewards.device) < lengths[:, None]
        returns = torch.where(valid, rewards, 0.0)
        steps = F.pad(turns[:, 1:] - turns[:, :-1], (0, 1))
        decay = torch.pow(self.gamma, steps.to(rewards.dtype))
        step = 1
        while step < rewards.shape[1]:  # after each pass a token has summed twice as many of those behind it
            returns = returns + decay * F.pad(returns[:, step:], (0, step))
            decay = decay * F.pad(decay[:, step:], (0, step))
            step *= 2
        return torch.where(acted & valid, returns, 0.0)


def get_inputs():
    lengths = torch.randint(2, LENGTH, (SEQUENCES,))
    empty, single, full, one_turn, tool = torch.randperm(SEQUENCES)[:5].split(1)
    lengths[empty], lengths[single], lengths[full] = 0, 1, LENGTH
    place = torch.arange(LENGTH)
    # Turns begin at random places; a few are skipped. Within each the first tokens are the tool's.
    starts = torch.rand(SEQUENCES, LENGTH) < 0.5 * TURNS / LENGTH
    starts[one_turn] = False
    turns = (starts * torch.randint(1, 3, (SEQUENCES, LENGTH))).cumsum(dim=1).clamp(max=TURNS - 1)
    acted = torch.rand(SEQUENCES, LENGTH) < 0.7
    acted[tool] = False
    # A reward at the end of turns, as of an evaluation, and small ones everywhere.
    ends = F.pad(turns[:, 1:] != turns[:, :-1], (0, 1)) | (place == lengths[:, None] - 1)
    rewards = torch.where(ends, 2.0 * torch.rand(SEQUENCES, LENGTH), 0.02 * torch.randn(SEQUENCES, LENGTH))
    return [rewards, turns, acted, lengths]


def get_init_inputs():
    return [GAMMA]
