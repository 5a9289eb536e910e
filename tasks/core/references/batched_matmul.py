"""A batch of matrix products: (BATCH, M, K) @ (BATCH, K, N)."""

import torch
import torch.nn as nn

BATCH, M, K, N = 96, 512, 256, 512


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N)]


def get_init_inputs():
    return []
