import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 64 * SCALE, 300


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.knee = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        return torch.sign(x) * torch.relu(x.abs() - self.knee)


def get_inputs():
    return [torch.randn(ROWS, COLS) * 2]


def get_init_inputs():
    return [COLS]
