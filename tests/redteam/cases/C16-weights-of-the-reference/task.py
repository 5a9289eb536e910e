import torch
import torch.nn as nn

SCALE = 1
M, K, N = 64 * SCALE, 64, 48


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.up = nn.Parameter(torch.randn(k, n) / k**0.5)
        self.scale = nn.Parameter(torch.rand(n) + 0.5)

    def forward(self, x):
        return (x @ self.up) * self.scale


def get_inputs():
    return [torch.randn(M, K)]


def get_init_inputs():
    return [K, N]
