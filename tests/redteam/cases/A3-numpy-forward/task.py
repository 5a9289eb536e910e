import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 96 * SCALE, 384


class Model(nn.Module):
    """Rows brought to zero mean and unit variance, then scaled and shifted."""

    def __init__(self, cols):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(cols) + 0.5)
        self.shift = nn.Parameter(torch.randn(cols))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * self.gain + self.shift


def get_inputs():
    return [torch.randn(ROWS, COLS) * 2 + 1]


def get_init_inputs():
    return [COLS]
