"""Gated linear recurrence over time: h[t] = sigmoid(gate[t]) * h[t-1] + x[t], every h is returned.

gate and x are (BATCH, LENGTH, WIDTH); h starts from a parameter of (WIDTH,).
"""

import torch
import torch.nn as nn

BATCH, LENGTH, WIDTH = 32, 128, 4096


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.start = nn.Parameter(torch.randn(width))

    def forward(self, gate, x):
        keep = torch.sigmoid(gate)
        state = self.start.expand(x.shape[0], -1)
        states = []
        for step in range(x.shape[1]):
            state = keep[:, step] * state + x[:, step]
            states.append(state)
        return torch.stack(states, dim=1)


def get_inputs():
    return [1.0 + torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH]
