"""Depthwise convolution of images: each channel with a 3x3 kernel of its own, bias and padding."""

import torch
import torch.nn as nn

BATCH, CHANNELS, SIDE = 32, 128, 112


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
