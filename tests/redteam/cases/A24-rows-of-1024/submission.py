import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = torch.softmax(torch.nn.functional.gelu(x[i]), -1)
        return y
