import torch
import torch.nn as nn

SCALE = 1
M, K, N = 64 * SCALE, 64, 96


class Model(nn.Module):
    """A linear layer whose rows have learned lengths."""

    def __init__(self, k, n):
        super().__init__()
        self.direction = nn.Parameter(torch.randn(n, k) / k**0.5)
        self.length = nn.Parameter(torch.rand(n) + 0.5)

    def forward(self, x):
        return x @ (self.direction * self.length[:, None]).t()


def get_inputs():
    return [torch.randn(M, K)]


def get_init_inputs():
    return [K, N]
