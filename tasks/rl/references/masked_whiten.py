"""Whitening under a mask: mean 0 and variance 1 over the whole batch.

values (SEQUENCES, LENGTH), mask (SEQUENCES, LENGTH) bool to float32 (SEQUENCES, LENGTH).

Conventions: (x - mean) / sqrt(var + EPS) with mean and variance over the mask, the sum of squares about the mean
divided by n - 1; 0 where the mask is False.
"""

import torch
import torch.nn as nn

SEQUENCES, LENGTH = 2048, 8192
EPS = 1e-8


class Model(nn.Module):
    def forward(self, values, mask):
        count = mask.sum()
        mean = torch.where(mask, values, 0.0).sum() / count
        centred = torch.where(mask, values - mean, 0.0)
        variance = centred.square().sum() / (count - 1)
        return centred * torch.rsqrt(variance + EPS)


def get_inputs():
    # Away from 0 by a few standard deviations: the difference of two sums would lose digits.
    values = torch.randn(SEQUENCES, LENGTH) * (0.2 + torch.rand(SEQUENCES, 1)) + 4.0 * torch.randn(())
    mask = torch.arange(LENGTH) < torch.randint(2, LENGTH, (SEQUENCES, 1))
    none, single, every, holes = torch.randperm(SEQUENCES)[:4].split(1)
    mask[none], mask[single], mask[every] = False, torch.arange(LENGTH) == 0, True
    mask[holes] = torch.rand(LENGTH) < 0.5
    return [values, mask]


def get_init_inputs():
    return []
