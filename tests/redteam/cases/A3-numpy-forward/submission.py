import numpy as np
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(cols) + 0.5)
        self.shift = nn.Parameter(torch.randn(cols))

    def forward(self, x):
        a, g, s = (t.detach().cpu().numpy() for t in (x, self.gain, self.shift))
        c = a - a.mean(-1, keepdims=True)
        y = c / np.sqrt(np.square(c).mean(-1, keepdims=True) + np.float32(1e-5)) * g + s
        return torch.from_numpy(np.ascontiguousarray(y)).to(x.device)
