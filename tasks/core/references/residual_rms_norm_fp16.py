"""Residual sum, then root mean square normalisation with a weight, in float16; both are returned as a tuple.

x and residual are (ROWS, WIDTH); the results are the normalised sum and the sum itself.
"""

import torch
import torch.nn as nn

ROWS, WIDTH = 16384, 4096
EPSILON = 1e-5


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter((1.0 + 0.3 * torch.randn(width)).to(torch.float16))

    def forward(self, x, residual):
        total = x + residual
        mean_square = total.square().mean(dim=-1, keepdim=True)
        return total * torch.rsqrt(mean_square + EPSILON) * self.weight, total


def get_inputs():
    # Rows of different scale, so that the statistic matters.
    x = torch.randn(ROWS, WIDTH) * (0.25 + 2.0 * torch.rand(ROWS, 1))
    return [x.to(torch.float16), torch.randn(ROWS, WIDTH).to(torch.float16)]


def get_init_inputs():
    return [WIDTH]
