"""Layer normalisation over the last dimension with weight and bias: (ROWS, WIDTH) to (ROWS, WIDTH)."""

import torch
import torch.nn as nn

ROWS, WIDTH = 16384, 4096


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias, 0.0, 0.5)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    # Rows of different scale and position, so that both statistics matter.
    return [torch.randn(ROWS, WIDTH) * (0.5 + torch.rand(ROWS, 1)) + torch.randn(ROWS, 1)]


def get_init_inputs():
    return [WIDTH]
