"""Transformer block with normalisation before each part: causal self-attention and a GELU feed-forward layer.

x is (BATCH, LENGTH, WIDTH), with HEADS heads and a hidden width of 4 * WIDTH.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LENGTH, WIDTH, HEADS = 8, 512, 768, 12


def norm(width):
    layer = nn.LayerNorm(width)
    nn.init.normal_(layer.weight, 1.0, 0.3)
    nn.init.normal_(layer.bias, 0.0, 0.3)
    return layer


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = norm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = norm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attention_in(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x))))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS]
