"""Whether a value lies between two bounds of its column: (ROWS, COLUMNS) to bool (ROWS, COLUMNS).

True where exactly one of the two bounds is below the value, so either bound may be the greater.
"""

import torch
import torch.nn as nn

ROWS, COLUMNS = 8192, 16384


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.first = nn.Parameter(torch.randn(columns))
        self.second = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return (x > self.first) ^ (x > self.second)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
