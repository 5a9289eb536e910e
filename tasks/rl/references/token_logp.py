"""Log-probability of the chosen token of each row of logits.

logits (ROWS, VOCAB) bfloat16, ids (ROWS,) int64, temperature (ROWS,) to float32 (ROWS,).

Conventions: the temperature divides the logits before the softmax; logits are read as bfloat16 and all arithmetic is
float32.
"""

import torch
import torch.nn as nn

ROWS, VOCAB = 2048, 151936


class Model(nn.Module):
    def forward(self, logits, ids, temperature):
        x = logits.float() if logits.dtype == torch.bfloat16 else logits
        logp = torch.log_softmax(x / temperature[:, None], dim=-1)
        return logp.gather(1, ids[:, None])[:, 0]


def get_inputs():
    logits = 4.0 * torch.randn(ROWS, VOCAB)
    ids = torch.randint(VOCAB, (ROWS,))
    low, high, peaked, sure = torch.randperm(ROWS)[:4].split(1)
    # Rows far below and far above zero, and rows with one token that has nearly all of the probability.
    logits[low] -= 90.0
    logits[high] += 90.0
    logits[peaked, torch.randint(VOCAB, (1,))] = 40.0
    logits[sure, ids[sure]] = 40.0
    return [logits.bfloat16(), ids, 0.5 + torch.rand(ROWS)]


def get_init_inputs():
    return []
