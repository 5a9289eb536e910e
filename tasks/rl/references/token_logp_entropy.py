"""Log-probability of the chosen token and entropy of each row of logits, some of which are minus infinity.

logits (ROWS, VOCAB) bfloat16, ids (ROWS,) int64, temperature (ROWS,) to two float32 tensors (ROWS,).

Conventions: the temperature divides the logits before both; arithmetic is float32; a token whose logit is minus
infinity (the padding of the vocabulary, a token that is not allowed) has the probability 0 and adds 0 to the entropy.
"""

import torch
import torch.nn as nn

ROWS, VOCAB = 2048, 151936
PADDED = 64


class Model(nn.Module):
    def forward(self, logits, ids, temperature):
        x = logits.float() if logits.dtype == torch.bfloat16 else logits
        logp = torch.log_softmax(x / temperature[:, None], dim=-1)
        entropy = -(logp.exp() * logp.masked_fill(x == float("-inf"), 0.0)).sum(dim=-1)
        return logp.gather(1, ids[:, None])[:, 0], entropy


def get_inputs():
    # Rows of different sharpness, so that entropies spread.
    logits = (0.5 + 5.0 * torch.rand(ROWS, 1)) * torch.randn(ROWS, VOCAB)
    ids = torch.randint(VOCAB - PADDED, (ROWS,))
    only, few, low = torch.randperm(ROWS)[:3].split(1)
    logits[low] -= 90.0
    # One row in which a single token is allowed, one in which half of them are not.
    column, row = torch.arange(VOCAB), torch.arange(ROWS)[:, None]
    barred = ((row == only) | ((row == few) & (torch.rand(VOCAB) < 0.5))) & (column != ids[:, None])
    logits = logits.masked_fill(barred | (column >= VOCAB - PADDED), float("-inf"))
    return [logits.bfloat16(), ids, 0.5 + torch.rand(ROWS)]


def get_init_inputs():
    return []
