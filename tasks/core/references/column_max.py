"""Greatest value of each column of each matrix in a batch: (BATCH, ROWS, COLUMNS) to (BATCH, COLUMNS)."""

import torch
import torch.nn as nn

BATCH, ROWS, COLUMNS = 32, 1024, 4096


class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=1)


def get_inputs():
    # Columns of different scale and position, so that the maxima spread.
    return [torch.randn(BATCH, ROWS, COLUMNS) * (0.5 + torch.rand(COLUMNS)) + 2.0 * torch.randn(COLUMNS)]


def get_init_inputs():
    return []
