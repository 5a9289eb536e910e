import warnings

import torch
import torch.nn as nn


def _body(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.atan(x) * y
    return z * torch.rsqrt(1 + z * z)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _kernel = torch.jit.script(_body)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return _kernel(x, y)
