import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 1024 * SCALE, 512


class Model(nn.Module):
    """A polynomial of each element, normalised by its row's largest magnitude."""

    def forward(self, x):
        y = ((0.3 * x - 0.7) * x + 1.1) * x - 0.2
        return y / (1 + y.abs().amax(-1, keepdim=True))


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
