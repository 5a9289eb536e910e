import torch
import torch.nn as nn

SCALE = 1
M, K, N = 48 * SCALE, 80, 112


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, n) / k**0.5)

    def forward(self, x):
        h = x @ self.weight
        return h * torch.sigmoid(h)


def get_inputs():
    return [torch.randn(M, K)]


def get_init_inputs():
    return [K, N]
