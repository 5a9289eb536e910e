import torch
import torch.nn as nn

SCALE = 1
ROWS, HEADS, D = 16 * SCALE, 6, 64


class Model(nn.Module):
    """Rotary position embedding, halves rotated."""

    def forward(self, x, cos, sin):
        a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def get_inputs():
    angle = torch.rand(ROWS, 1, D // 2) * 6.25
    return [torch.randn(ROWS, HEADS, D), torch.cos(angle), torch.sin(angle)]


def get_init_inputs():
    return []
