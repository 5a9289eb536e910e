"""Rotary position embedding: each pair (x[i], x[i + WIDTH/2]) of a head turns by an angle that grows with the position.

x is (BATCH, HEADS, LENGTH, WIDTH); cosine and sine are (LENGTH, WIDTH / 2).
"""

import torch
import torch.nn as nn

BATCH, HEADS, LENGTH, WIDTH = 8, 16, 4096, 128


class Model(nn.Module):
    def forward(self, x, cosine, sine):
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def get_inputs():
    frequency = 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    angle = torch.outer(torch.arange(LENGTH) + 1.0, frequency)
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH), angle.cos(), angle.sin()]


def get_init_inputs():
    return []
