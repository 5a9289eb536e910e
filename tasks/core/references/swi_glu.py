"""SwiGLU gate: the first half of each row passes through SiLU and multiplies the second half.

x is (ROWS, 2 * WIDTH), y is (ROWS, WIDTH).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, WIDTH = 8192, 8192


class Model(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs():
    return [2.0 * torch.randn(ROWS, 2 * WIDTH)]


def get_init_inputs():
    return []
