"""Matrix product of two transposed operands: (K, M)^T @ (N, K)^T to (M, N)."""

import torch
import torch.nn as nn

M, K, N = 2048, 8192, 2048


class Model(nn.Module):
    def forward(self, a, b):
        return a.T @ b.T


def get_inputs():
    return [torch.randn(K, M), torch.randn(N, K)]


def get_init_inputs():
    return []
