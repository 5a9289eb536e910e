"""Leave-one-out advantages: of whole trajectories (RLOO) and of each turn (TRLOO).

scores (GROUPS, SAMPLES, TURNS), lengths (GROUPS, SAMPLES) int64 to rloo (GROUPS, SAMPLES) and trloo
(GROUPS, SAMPLES, TURNS).

Conventions: the return of turn t is G_t = sum over t <= i < length of GAMMA^(i-t) score_i. rloo is G_0 minus the mean
of the others' G_0, over the group's trajectories of at least one turn, and 0 where there is no other. trloo is G_t
minus the mean of the others' G_t over those that reached turn t (none is padded with 0), and G_t itself where there is
no other. Both are 0 for turns that were not reached.
"""

import torch
import torch.nn as nn

GROUPS, SAMPLES, TURNS = 4096, 16, 8
GAMMA = 0.9


class Model(nn.Module):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma

    def forward(self, scores, lengths):
        reached = torch.arange(scores.shape[2], device=scores.device) < lengths[..., None]
        scores = torch.where(reached, scores, 0.0)
        ahead, returns = torch.zeros_like(scores[..., 0]), torch.empty_like(scores)
        for turn in reversed(range(scores.shape[2])):
            ahead = scores[..., turn] + self.gamma * ahead
            returns[..., turn] = ahead
        count = reached.sum(dim=1, keepdim=True)
        centred = returns - returns.sum(dim=1, keepdim=True) / count.clamp(min=1)
        others = centred * count / (count - 1).clamp(min=1)
        rloo = torch.where(reached & (count > 1), others, 0.0)[..., 0]
        trloo = torch.where(reached, torch.where(count > 1, others, returns), 0.0)
        return rloo, trloo


def get_inputs():
    lengths = torch.randint(0, TURNS + 1, (GROUPS, SAMPLES))
    none, alone, full, equal = torch.randperm(GROUPS)[:4].split(1)
    lengths[none], lengths[alone], lengths[full] = 0, 0, TURNS
    lengths[alone, torch.randint(SAMPLES, (1,))] = TURNS
    scores = torch.randn(GROUPS, SAMPLES, TURNS) + torch.randn(GROUPS, 1, 1)
    scores[equal] = 1.0
    return [scores, lengths]


def get_init_inputs():
    return [GAMMA]
