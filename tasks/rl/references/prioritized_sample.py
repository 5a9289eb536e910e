"""A stratified draw from a replay buffer by priority, with importance weights.

priorities (ITEMS,) int64 of at least 0, numbers (DRAWS,) int64 of 16 random bits each, beta () to indices (DRAWS,)
int64 and weights (DRAWS,).

Conventions: priorities are fixed-point numbers, so that their sums are exact in any order. Draw i aims at
floor((i * 2^16 + numbers_i) * total / (DRAWS * 2^16)) and takes the first item whose cumulative sum is greater than
that; an item of priority 0 is never drawn. Its weight is (ITEMS * priority / total)^-beta, divided by the greatest
weight of the draw.
"""

import torch
import torch.nn as nn

ITEMS, DRAWS = 16777216, 4096


class Model(nn.Module):
    def forward(self, priorities, numbers, beta):
        sums = priorities.cumsum(0)
        total, draws = sums[-1], numbers.shape[0]
        aims = (torch.arange(draws, device=numbers.device) * 65536 + numbers) * total // (draws * 65536)
        indices = torch.searchsorted(sums, aims, right=True)
        share = priorities[indices].to(beta.dtype) * priorities.shape[0] / total.to(beta.dtype)
        weights = share.pow(-beta)
        return indices, weights / weights.max()


def get_inputs():
    # Up to 400 each: the product above stays below 2^63. Runs of items that were never seen have the priority 0.
    priorities = (400.0 * torch.rand(ITEMS) ** 3).long() + 1
    priorities = priorities * (torch.rand(ITEMS) < 0.9)
    start = torch.randint(ITEMS // 2, ())
    place = torch.arange(ITEMS)
    priorities = priorities * ((place < start) | (place >= start + ITEMS // 8))
    priorities = priorities * ((place > 0) & (place < ITEMS - 1))  # nor is the first or the last
    numbers = torch.randint(65536, (DRAWS,))
    edges = torch.randperm(DRAWS)[:2]
    numbers[edges] = torch.tensor([0, 65535])
    return [priorities, numbers, 0.4 + 0.6 * torch.rand(())]


def get_init_inputs():
    return []
