"""Linear layer with bias, then GELU in its tanh form: (ROWS, INPUT) to (ROWS, OUTPUT)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, INPUT, OUTPUT = 4096, 4096, 4096


class Model(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width_in, width_out) * width_in**-0.5)
        self.bias = nn.Parameter(torch.randn(width_out))

    def forward(self, x):
        return F.gelu(x @ self.weight + self.bias, approximate="tanh")


def get_inputs():
    return [torch.randn(ROWS, INPUT)]


def get_init_inputs():
    return [INPUT, OUTPUT]
