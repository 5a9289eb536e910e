"""GELU in its tanh form, elementwise: y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, COLUMNS = 8192, 8192


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")


def get_inputs():
    return [2.0 * torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
