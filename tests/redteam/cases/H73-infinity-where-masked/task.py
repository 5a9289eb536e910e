import torch
import torch.nn as nn

SCALE = 1
ROWS, COLS = 64 * SCALE, 160


class Model(nn.Module):
    """Log-probabilities of what is allowed."""

    def forward(self, x, allowed):
        return torch.log_softmax(x.masked_fill(~allowed, float("-inf")), dim=-1)


def get_inputs():
    allowed = torch.rand(ROWS, COLS) < 0.7
    allowed[:, 0] = True
    return [torch.randn(ROWS, COLS) * 2, allowed]


def get_init_inputs():
    return []
