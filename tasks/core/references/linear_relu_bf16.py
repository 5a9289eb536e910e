"""Linear layer in bfloat16 with bias, then squared ReLU: (ROWS, INPUT) to (ROWS, OUTPUT), all bfloat16."""

import torch
import torch.nn as nn

ROWS, INPUT, OUTPUT = 8192, 4096, 4096


class Model(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.linear = nn.Linear(width_in, width_out, dtype=torch.bfloat16)
        nn.init.normal_(self.linear.weight, 0.0, width_in**-0.5)
        nn.init.normal_(self.linear.bias, 0.0, 0.5)

    def forward(self, x):
        return torch.relu(self.linear(x)).square()


def get_inputs():
    return [torch.randn(ROWS, INPUT).to(torch.bfloat16)]


def get_init_inputs():
    return [INPUT, OUTPUT]
