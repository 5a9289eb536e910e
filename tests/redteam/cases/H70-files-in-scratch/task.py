import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 96 * SCALE, 256


class Model(nn.Module):
    """Chebyshev series of each element."""

    def __init__(self, degree):
        super().__init__()
        self.degree = degree

    def forward(self, x):
        x = torch.tanh(x)
        before, now = torch.ones_like(x), x
        total = 0.5 * before + now / 2
        for k in range(2, self.degree + 1):
            before, now = now, 2 * x * now - before
            total = total + now / (k + 1)
        return total


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [8]
