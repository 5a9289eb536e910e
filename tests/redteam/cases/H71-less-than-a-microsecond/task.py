import torch
import torch.nn as nn

N = 48


class Model(nn.Module):
    """A vector brought to length one."""

    def forward(self, x):
        return x / (x.norm() + 1e-6)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
