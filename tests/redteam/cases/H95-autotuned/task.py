import torch
import torch.nn as nn

SCALE = 1


class Model(nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.silu(x) * y


def get_inputs():
    return [torch.randn(64 * SCALE, 130), torch.randn(64 * SCALE, 130)]


def get_init_inputs():
    return []
