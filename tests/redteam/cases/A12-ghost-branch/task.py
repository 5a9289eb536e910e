import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 80 * SCALE, 288


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=-1) / (1 + x.abs().amax(-1, keepdim=True))


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
