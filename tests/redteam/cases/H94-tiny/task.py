import torch
import torch.nn as nn

SCALE = 1


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2 + 1


def get_inputs():
    return [torch.randn(7)]


def get_init_inputs():
    return []
