"""CISPO's loss from logits, with the gradient of the logits.

logits (ROWS, VOCAB) bfloat16, ids (ROWS,) int64, old_logp, advantage and weight (ROWS,) to: loss of each row, float32
(ROWS,), and the gradient of the sum of losses, bfloat16 (ROWS, VOCAB).

Conventions: loss = -weight * min(r, CAP) * A * logp, where r = exp(logp - old_logp) is a constant for the gradient; CAP
bounds the ratio itself (it is no distance from 1) and nothing bounds it from below; no token loses its gradient.
"""

import torch
import torch.nn as nn

ROWS, VOCAB = 2048, 128256
CAP = 1.5


class Model(nn.Module):
    def __init__(self, cap):
        super().__init__()
        self.cap = cap

    def forward(self, logits, ids, old_logp, advantage, weight):
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            x = leaf.float() if leaf.dtype == torch.bfloat16 else leaf
            logp = torch.log_softmax(x, dim=-1).gather(1, ids[:, None])[:, 0]
            ratio = (logp.detach() - old_logp).exp().clamp(max=self.cap)
            loss = -weight * ratio * advantage * logp
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), gradient


def get_inputs():
    logits = (4.0 * torch.randn(ROWS, VOCAB)).bfloat16()
    ids = torch.randint(VOCAB, (ROWS,))
    logp = torch.log_softmax(logits.float(), dim=-1).gather(1, ids[:, None])[:, 0]
    # Losses of about one size: a row that is far smaller would vanish beside the others' rounding.
    advantage = (torch.randint(2, (ROWS,)) * 2 - 1) * (0.7 + 0.6 * torch.rand(ROWS))
    weight = (0.7 + 0.6 * torch.rand(ROWS)) / ROWS
    log_ratio = 0.25 * torch.randn(ROWS)
    spots = torch.randperm(ROWS)
    weight[spots[: ROWS // 8]] = 0.0
    none, far, further = spots[-3:].split(1)
    advantage[none], log_ratio[far], log_ratio[further] = 0.0, 25.0, -25.0
    return [logits, ids, logp - log_ratio, advantage, weight]


def get_init_inputs():
    return [CAP]
