import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 64 * SCALE, 256


class Model(nn.Module):
    def __init__(self, cap):
        super().__init__()
        self.cap = cap

    def forward(self, x, gate):
        return self.cap * torch.tanh(x / self.cap) * torch.sigmoid(gate)


def get_inputs():
    return [torch.randn(ROWS, COLS) * 4, torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [5.0]
