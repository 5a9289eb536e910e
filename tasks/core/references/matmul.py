"""Matrix product: (M, K) @ (K, N)."""

import torch
import torch.nn as nn

M, K, N = 4096, 4096, 4096


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
