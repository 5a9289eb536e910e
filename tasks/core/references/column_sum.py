"""Weighted sum over the rows of a matrix: (ROWS, COLUMNS) and one weight per row to (COLUMNS,)."""

import torch
import torch.nn as nn

ROWS, COLUMNS = 16384, 8192


class Model(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, 1))

    def forward(self, x):
        return (x * self.weight).sum(dim=0)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [ROWS]
