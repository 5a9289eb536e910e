"""Mean over sliding windows of a sequence: (BATCH, CHANNELS, LENGTH), windows of WINDOW with stride STRIDE."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, LENGTH = 64, 128, 8192
WINDOW, STRIDE = 8, 2


class Model(nn.Module):
    def forward(self, x):
        return F.avg_pool1d(x, WINDOW, stride=STRIDE)


def get_inputs():
    # Channels of different position, so that the means spread.
    return [torch.randn(BATCH, CHANNELS, LENGTH) + torch.randn(BATCH, CHANNELS, 1)]


def get_init_inputs():
    return []
