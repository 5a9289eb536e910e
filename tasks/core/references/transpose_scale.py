"""Transposed matrices in contiguous memory, each row scaled: (BATCH, ROWS, COLUMNS) to (BATCH, COLUMNS, ROWS)."""

import torch
import torch.nn as nn

BATCH, ROWS, COLUMNS = 16, 2048, 2048


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(1.0 + 0.5 * torch.randn(columns, 1))

    def forward(self, x):
        return x.transpose(1, 2).contiguous() * self.scale


def get_inputs():
    return [torch.randn(BATCH, ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
