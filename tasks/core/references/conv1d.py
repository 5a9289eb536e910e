"""Convolution over sequences with bias and padding: (BATCH, INPUT, LENGTH) to (BATCH, OUTPUT, LENGTH)."""

import torch
import torch.nn as nn

BATCH, INPUT, OUTPUT, LENGTH = 32, 64, 128, 16384
KERNEL = 5


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, kernel):
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, kernel, padding=kernel // 2)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, INPUT, LENGTH)]


def get_init_inputs():
    return [INPUT, OUTPUT, KERNEL]
