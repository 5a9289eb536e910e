"""Values of all actions from a Gaussian process over a dictionary of states, with their variance.

states (ROWS, WIDTH), dictionary (ATOMS, WIDTH), scales (WIDTH,), alpha (ATOMS, ACTIONS) and precision (ATOMS, ATOMS),
symmetric, to values (ROWS, ACTIONS) and variance (ROWS,).

Conventions: k(x, d) = exp(-0.5 * sum of ((x - d) / scales)^2); values = K alpha;
variance = max(0, 1 - sum over i, j of K_i precision_ij K_j); all products in float32.
"""

import torch
import torch.nn as nn

ROWS, WIDTH, ATOMS, ACTIONS = 65536, 16, 256, 8


class Model(nn.Module):
    def forward(self, states, dictionary, scales, alpha, precision):
        x, d = states / scales, dictionary / scales
        squares = x.square().sum(dim=1)[:, None] + d.square().sum(dim=1) - 2.0 * (x @ d.T)
        kernel = torch.exp(-0.5 * squares.clamp(min=0.0))
        variance = 1.0 - ((kernel @ precision) * kernel).sum(dim=1)
        return kernel @ alpha, variance.clamp(min=0.0)


def get_inputs():
    scales = 2.0 + 2.0 * torch.rand(WIDTH)
    dictionary = torch.randn(ATOMS, WIDTH)
    states = torch.randn(ROWS, WIDTH)
    on, far = torch.randperm(ROWS)[:2].split(1)
    # A state of the dictionary, and one from nowhere.
    states[on], states[far] = dictionary[torch.randint(ATOMS, (1,))], 40.0
    near = (dictionary[:, None] - dictionary).div(scales).square().sum(dim=-1)
    gram = torch.exp(-0.5 * near).double() + 0.1 * torch.eye(ATOMS, dtype=torch.float64)
    precision = torch.linalg.inv(gram)
    precision = (0.5 * (precision + precision.T)).float()
    return [states, dictionary, scales, torch.randn(ATOMS, ACTIONS), precision]


def get_init_inputs():
    return []
