import torch
import torch.nn as nn

SCALE = 1


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(torch.nn.functional.gelu(x), dim=-1)


def get_inputs():
    return [torch.randn(64 * SCALE, 1024)]


def get_init_inputs():
    return []
