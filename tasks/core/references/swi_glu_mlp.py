"""Gated feed-forward layer without biases: y = (silu(x @ gate) * (x @ up)) @ down."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, WIDTH, HIDDEN = 2048, 1024, 4096


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [2.0 * torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
