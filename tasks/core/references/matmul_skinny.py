"""Product of a few rows with a large weight, as in decoding: (TOKENS, INPUT) @ (OUTPUT, INPUT)^T."""

import torch
import torch.nn as nn

TOKENS, INPUT, OUTPUT = 8, 8192, 16384


class Model(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width_out, width_in) * width_in**-0.5)

    def forward(self, x):
        return x @ self.weight.T


def get_inputs():
    return [torch.randn(TOKENS, INPUT)]


def get_init_inputs():
    return [INPUT, OUTPUT]
