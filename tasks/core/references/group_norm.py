"""Group normalisation of images with weight and bias per channel: (BATCH, CHANNELS, SIDE, SIDE), GROUPS groups."""

import torch
import torch.nn as nn

BATCH, CHANNELS, SIDE = 64, 64, 128
GROUPS = 8


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias, 0.0, 0.5)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    # Channels of different scale and position, so that both statistics matter.
    spread, shift = 0.5 + torch.rand(BATCH, CHANNELS, 1, 1), torch.randn(BATCH, CHANNELS, 1, 1)
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * spread + shift]


def get_init_inputs():
    return [GROUPS, CHANNELS]
