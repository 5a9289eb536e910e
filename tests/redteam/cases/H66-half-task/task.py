import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 64 * SCALE, 384


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.gain = nn.Parameter((torch.rand(cols) + 0.5).half())

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-5)).half() * self.gain


def get_inputs():
    return [torch.randn(ROWS, COLS).half()]


def get_init_inputs():
    return [COLS]
