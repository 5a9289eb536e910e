import torch
import torch.nn as nn

SCALE = 1
B, C, L = 4 * SCALE, 64, 96


class Model(nn.Module):
    """Batch normalisation by stored statistics, then a clipped rectifier."""

    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(c) + 0.5)
        self.bias = nn.Parameter(torch.randn(c))
        self.register_buffer("mean", torch.randn(c))
        self.register_buffer("var", torch.rand(c) + 0.5)

    def forward(self, x):
        y = (x - self.mean[:, None]) / torch.sqrt(self.var[:, None] + 1e-5) * self.weight[:, None] + self.bias[:, None]
        return y.clamp(0, 6)


def get_inputs():
    return [torch.randn(B, C, L)]


def get_init_inputs():
    return [C]
