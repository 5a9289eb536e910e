"""Linear layer, residual sum, layer normalisation: y = norm(x @ weight + bias + residual)."""

import torch
import torch.nn as nn

ROWS, INPUT, WIDTH = 8192, 4096, 1024


class Model(nn.Module):
    def __init__(self, width_in, width):
        super().__init__()
        self.linear = nn.Linear(width_in, width)
        nn.init.normal_(self.linear.bias, 0.0, 0.5)
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias, 0.0, 0.5)

    def forward(self, x, residual):
        return self.norm(self.linear(x) + residual)


def get_inputs():
    return [torch.randn(ROWS, INPUT), torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [INPUT, WIDTH]
