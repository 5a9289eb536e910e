import torch
import torch.nn as nn

SCALE = 1
M, K, N = 64 * SCALE, 64, 64


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k) / k**0.5)
        self.bias = nn.Parameter(torch.randn(n) * 0.002)

    def forward(self, x):
        return x @ self.weight.t() + self.bias


def get_inputs():
    return [torch.randn(M, K)]


def get_init_inputs():
    return [K, N]
