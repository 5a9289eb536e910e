"""Triplet margin per row: max(0, |a - p| - |a - n| + MARGIN) with Euclidean distances.

Anchor a, positive p and negative n are (ROWS, WIDTH); the result is (ROWS,).
"""

import torch
import torch.nn as nn

ROWS, WIDTH = 32768, 1024
MARGIN = 5.0


class Model(nn.Module):
    def forward(self, anchor, positive, negative):
        near = (anchor - positive).square().sum(dim=1).sqrt()
        far = (anchor - negative).square().sum(dim=1).sqrt()
        return torch.clamp(near - far + MARGIN, min=0.0)


def get_inputs():
    # Rows of different spread, so that the margin binds for some rows and not for others.
    spread = 0.5 + torch.rand(2, ROWS, 1)
    anchor, positive, negative = torch.randn(3, ROWS, WIDTH)
    return [anchor, spread[0] * positive, spread[1] * negative]


def get_init_inputs():
    return []
