"""Greatest value in overlapping 3x3 windows with stride 2: (BATCH, CHANNELS, SIDE, SIDE), padded by 1."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, SIDE = 32, 64, 256


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
