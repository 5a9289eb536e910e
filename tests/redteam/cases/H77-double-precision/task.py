import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 48 * SCALE, 130


class Model(nn.Module):
    """Mean and standard deviation of each row."""

    def forward(self, x):
        mean = x.mean(-1)
        return mean, torch.sqrt((x - mean[:, None]).square().mean(-1))


def get_inputs():
    return [torch.randn(ROWS, COLS, dtype=torch.float64) * 3 + 10]


def get_init_inputs():
    return []
