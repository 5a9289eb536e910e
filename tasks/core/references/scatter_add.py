"""Sums of a row's values per bucket, added to a base: y[r, index[r, c]] += values[r, c].

base is (ROWS, BUCKETS), index is int64 (ROWS, COLUMNS) below BUCKETS, values are (ROWS, COLUMNS).
"""

import torch
import torch.nn as nn

ROWS, COLUMNS, BUCKETS = 4096, 8192, 256


class Model(nn.Module):
    def forward(self, base, index, values):
        return base.scatter_add(1, index, values)


def get_inputs():
    return [torch.randn(ROWS, BUCKETS), torch.randint(0, BUCKETS, (ROWS, COLUMNS)), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
