"""Convolution of images, then ReLU, then a scale and a shift per channel: 3x3 kernel, padding 1."""

import torch
import torch.nn as nn

BATCH, INPUT, OUTPUT, SIDE = 32, 32, 64, 128


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.scale = nn.Parameter(1.0 + 0.3 * torch.randn(channels_out, 1, 1))
        self.shift = nn.Parameter(0.5 * torch.randn(channels_out, 1, 1))

    def forward(self, x):
        return torch.relu(self.conv(x)) * self.scale + self.shift


def get_inputs():
    return [2.0 * torch.randn(BATCH, INPUT, SIDE, SIDE)]


def get_init_inputs():
    return [INPUT, OUTPUT]
