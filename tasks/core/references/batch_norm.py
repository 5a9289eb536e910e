"""Batch normalisation of images by the statistics of the batch itself, with weight and bias per channel.

x is (BATCH, CHANNELS, SIDE, SIDE); no running statistics are kept, so training and evaluation mode are the same.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, SIDE = 64, 64, 128


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.3 * torch.randn(channels))
        self.bias = nn.Parameter(0.5 * torch.randn(channels))

    def forward(self, x):
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True)


def get_inputs():
    # Channels of different scale and position, so that both statistics matter.
    spread, shift = 0.5 + torch.rand(CHANNELS, 1, 1), torch.randn(CHANNELS, 1, 1)
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * spread + shift]


def get_init_inputs():
    return [CHANNELS]
