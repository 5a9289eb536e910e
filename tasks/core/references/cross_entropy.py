"""Cross entropy of each row of logits against an integer target: (TOKENS, VOCABULARY), int64 (TOKENS,) to (TOKENS,)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, VOCABULARY = 8192, 16384


class Model(nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target, reduction="none")


def get_inputs():
    return [3.0 * torch.randn(TOKENS, VOCABULARY), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return []
