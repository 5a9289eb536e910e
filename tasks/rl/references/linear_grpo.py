"""GRPO's clipped loss straight from hidden states, with the gradients of the hidden states and of the output layer.

hidden (ROWS, WIDTH) bfloat16, ids (ROWS,) int64, old_logp, advantage and weight (ROWS,), and the output layer's weight
(VOCAB, WIDTH) bfloat16 to: loss of each row (ROWS,), gradient of the sum of losses for the hidden states (ROWS, WIDTH)
and for the layer (VOCAB, WIDTH), all float32.

Conventions: products are summed in float32, logits and their gradient stay in float32, and so do both results;
loss = -weight * min(A r, A clip(r, 1 - LOW, 1 + HIGH)) with r = exp(logp - old_logp), the difference kept within -20
and 20 (no gradient outside); at equal branches the gradient is the unclipped one's; a row of weight 0 has loss 0 and
adds exactly 0 to both gradients.
"""

import math

import torch
import torch.nn as nn

ROWS, WIDTH, VOCAB = 1024, 2048, 151936
LOW, HIGH = 0.2, 0.28


class Model(nn.Module):
    def __init__(self, vocab, width, low, high):
        super().__init__()
        self.low, self.high = low, high
        self.head = nn.Parameter((0.7 * width**-0.5 * torch.randn(vocab, width)).bfloat16())

    def forward(self, hidden, ids, old_logp, advantage, weight):
        head = self.head.detach()
        if hidden.dtype == torch.bfloat16:
            hidden, head = hidden.float(), head.float()
        with torch.enable_grad():
            hidden, head = hidden.detach().requires_grad_(), head.requires_grad_()
            logp = torch.log_softmax(hidden @ head.T, dim=-1).gather(1, ids[:, None])[:, 0]
            ratio = (logp - old_logp).clamp(-20.0, 20.0).exp()
            plain, clipped = advantage * ratio, advantage * ratio.clamp(1.0 - self.low, 1.0 + self.high)
            loss = -weight * torch.where(plain <= clipped, plain, clipped)
            gradients = torch.autograd.grad(loss.sum(), [hidden, head])
        return loss.detach(), *gradients


def get_inputs():
    hidden = torch.randn(ROWS, WIDTH).bfloat16()
    ids = torch.randint(VOCAB, (ROWS,))
    # The policy's log-probabilities are not known here, where the layer is not: old ones of about their size, and a
    # few so far away that the ratio is beyond a bound for certain.
    old_logp = -math.log(VOCAB) - 0.25 + 0.2 * torch.randn(ROWS)
    advantage = (torch.randint(2, (ROWS,)) * 2 - 1) * (0.5 + torch.rand(ROWS))
    weight = (0.5 + torch.rand(ROWS)) / ROWS
    spots = torch.randperm(ROWS)
    weight[spots[: ROWS // 8]] = 0.0
    none, far, further = spots[-3:].split(1)
    advantage[none] = 0.0
    old_logp[far], advantage[far] = old_logp[far] - 60.0, 1.0
    old_logp[further] = 0.0
    return [hidden, ids, old_logp, advantage, weight]


def get_init_inputs():
    return [VOCAB, WIDTH, LOW, HIGH]
