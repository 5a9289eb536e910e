"""Log-probability of the chosen token straight from hidden states, by way of the output layer.

hidden (ROWS, WIDTH) bfloat16, ids (ROWS,) int64 and the layer's weight (VOCAB, WIDTH) bfloat16 to float32 (ROWS,).

Conventions: products of bfloat16 numbers are summed in float32 and the logits stay in float32, so nothing is rounded
between the weight and the log-probability.
"""

import torch
import torch.nn as nn

ROWS, WIDTH, VOCAB = 2048, 2048, 151936


class Model(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.weight = nn.Parameter((2.0 * width**-0.5 * torch.randn(vocab, width)).bfloat16())

    def forward(self, hidden, ids):
        weight = self.weight
        if hidden.dtype == torch.bfloat16:
            hidden, weight = hidden.float(), weight.float()
        return torch.log_softmax(hidden @ weight.T, dim=-1).gather(1, ids[:, None])[:, 0]


def get_inputs():
    hidden = torch.randn(ROWS, WIDTH) * (0.5 + 2.0 * torch.rand(ROWS, 1))
    hidden[torch.randint(ROWS, (1,))] = 0.0  # every token is as likely as any other
    return [hidden.bfloat16(), torch.randint(VOCAB, (ROWS,))]


def get_init_inputs():
    return [VOCAB, WIDTH]
