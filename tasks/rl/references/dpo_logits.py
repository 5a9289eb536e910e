"""DPO's loss from logits, with the gradient of the logits.

logits (2 * PAIRS, LENGTH, VOCAB) bfloat16, ids (2 * PAIRS, LENGTH) int64, lengths (2 * PAIRS,) int64, ref_sums
(2 * PAIRS,) to: loss of each pair, float32 (PAIRS,), and the gradient of their mean, bfloat16 like the logits.

Conventions: the chosen responses come first, the rejected ones after them, in the same order; a response's
log-probability is the sum over its first `lengths` tokens, 0 for an empty one; with the margin
m = (chosen - rejected) - (ref_chosen - ref_rejected) the loss is -log sigmoid(BETA m); what is beyond a length has a
gradient of exactly 0.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

PAIRS, LENGTH, VOCAB = 4, 512, 50257
BETA = 0.1


class Model(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, logits, ids, lengths, ref_sums):
        valid = torch.arange(logits.shape[1], device=logits.device) < lengths[:, None]
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            x = leaf.float() if leaf.dtype == torch.bfloat16 else leaf
            logp = torch.log_softmax(x, dim=-1).gather(2, ids[..., None])[..., 0]
            chosen, rejected = ((logp * valid).sum(dim=1) - ref_sums).chunk(2)
            loss = -F.logsigmoid(self.beta * (chosen - rejected))
            (gradient,) = torch.autograd.grad(loss.mean(), leaf)
        return loss.detach(), gradient


def get_inputs():
    logits = (4.0 * torch.randn(2 * PAIRS, LENGTH, VOCAB)).bfloat16()
    ids = torch.randint(VOCAB, (2 * PAIRS, LENGTH))
    lengths = torch.randint(2, LENGTH, (2 * PAIRS,))
    empty, single, full = torch.randperm(2 * PAIRS)[:3].split(1)
    lengths[empty], lengths[single], lengths[full] = 0, 1, LENGTH
    logp = torch.log_softmax(logits.float(), dim=-1).gather(2, ids[..., None])[..., 0]
    sums = (logp * (torch.arange(LENGTH) < lengths[:, None])).sum(dim=1)
    # Margins of -20 to 20: beyond them a pair's gradient vanishes beside the others' rounding.
    return [logits, ids, lengths, sums + 20.0 * torch.rand(2 * PAIRS) - 10.0]


def get_init_inputs():
    return [BETA]
