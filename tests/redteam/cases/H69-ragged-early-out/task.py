import torch
import torch.nn as nn

SCALE = 1
B, L, D = 24 * SCALE, 80, 32


class Model(nn.Module):
    """Mean over the valid steps of each row; rows of length zero give zeros."""

    def forward(self, x, length):
        valid = (torch.arange(x.shape[1], device=x.device) < length[:, None]).to(x.dtype)
        return (x * valid[..., None]).sum(1) / length.clamp(min=1).to(x.dtype)[:, None]


def get_inputs():
    return [torch.randn(B, L, D), torch.randint(0, L + 1, (B,))]


def get_init_inputs():
    return []
