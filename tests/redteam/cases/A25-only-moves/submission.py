import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.pad(torch.cat([x.transpose(1, 2), y], dim=1), (1, 1))
