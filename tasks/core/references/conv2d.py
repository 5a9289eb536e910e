"""Convolution of images with a 3x3 kernel, bias and padding 1.

x is (BATCH, INPUT, SIDE, SIDE), y is (BATCH, OUTPUT, SIDE, SIDE).
"""

import torch
import torch.nn as nn

BATCH, INPUT, OUTPUT, SIDE = 32, 64, 128, 128


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, INPUT, SIDE, SIDE)]


def get_init_inputs():
    return [INPUT, OUTPUT]
