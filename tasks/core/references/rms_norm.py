"""Root mean square normalisation over the last dimension with a weight: y = x / sqrt(mean(x^2) + EPSILON) * weight."""

import torch
import torch.nn as nn

ROWS, WIDTH = 16384, 4096
EPSILON = 1e-5


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.3 * torch.randn(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPSILON) * self.weight


def get_inputs():
    # Rows of different scale, so that the statistic matters.
    return [torch.randn(ROWS, WIDTH) * (0.25 + 2.0 * torch.rand(ROWS, 1))]


def get_init_inputs():
    return [WIDTH]
