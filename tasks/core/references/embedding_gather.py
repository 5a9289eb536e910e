"""Rows of a table by index, scaled: (TOKENS,) int64 and a (VOCABULARY, WIDTH) table to (TOKENS, WIDTH)."""

import torch
import torch.nn as nn

TOKENS, VOCABULARY, WIDTH = 65536, 65536, 1024


class Model(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocabulary, width))
        self.scale = width**0.5

    def forward(self, index):
        return self.table[index] * self.scale


def get_inputs():
    return [torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return [VOCABULARY, WIDTH]
