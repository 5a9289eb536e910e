"""MLP-Mixer block: a feed-forward layer across patches, then one across channels, each with norm and residual.

x is (BATCH, PATCHES, CHANNELS).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, PATCHES, CHANNELS = 64, 196, 512
PATCH_HIDDEN, CHANNEL_HIDDEN = 256, 2048


def norm(width):
    layer = nn.LayerNorm(width)
    nn.init.normal_(layer.weight, 1.0, 0.3)
    nn.init.normal_(layer.bias, 0.0, 0.3)
    return layer


class Model(nn.Module):
    def __init__(self, patches, channels, patch_hidden, channel_hidden):
        super().__init__()
        self.patch_norm = norm(channels)
        self.patch_in = nn.Linear(patches, patch_hidden)
        self.patch_out = nn.Linear(patch_hidden, patches)
        self.channel_norm = norm(channels)
        self.channel_in = nn.Linear(channels, channel_hidden)
        self.channel_out = nn.Linear(channel_hidden, channels)

    def forward(self, x):
        across = self.patch_norm(x).transpose(1, 2)
        x = x + self.patch_out(F.gelu(self.patch_in(across))).transpose(1, 2)
        return x + self.channel_out(F.gelu(self.channel_in(self.channel_norm(x))))


def get_inputs():
    return [torch.randn(BATCH, PATCHES, CHANNELS)]


def get_init_inputs():
    return [PATCHES, CHANNELS, PATCH_HIDDEN, CHANNEL_HIDDEN]
