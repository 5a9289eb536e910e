import torch
import torch.nn as nn

SCALE = 1
ROWS, D = 64 * SCALE, 128


class Model(nn.Module):
    """Sketch: fixed random signs, a learned map, rectified."""

    def __init__(self, d):
        super().__init__()
        self.map = nn.Parameter(torch.empty(d, d))
        nn.init.xavier_uniform_(self.map)
        torch.manual_seed(1234)
        self.register_buffer("signs", torch.randint(0, 2, (d,)).float() * 2 - 1)

    def forward(self, x):
        return torch.relu((x * self.signs) @ self.map.t())


def get_inputs():
    return [torch.randn(ROWS, D)]


def get_init_inputs():
    return [D]
