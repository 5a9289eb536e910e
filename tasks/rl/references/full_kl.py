"""KL divergence over the whole vocabulary from the policy to a reference policy, with the gradient of the logits.

logits and ref_logits (ROWS, VOCAB) bfloat16, weight (ROWS,) to: KL of each row, float32 (ROWS,), and the gradient of
sum(weight * KL) for the first logits, bfloat16 (ROWS, VOCAB).

Conventions: KL = sum of p (log p - log q) with p of the policy and q of the reference; arithmetic is float32; a token
whose logit is minus infinity (in both: the padding of the vocabulary) adds 0 and has the gradient 0; a row of weight 0
has a gradient of exactly 0.
"""

import torch
import torch.nn as nn

ROWS, VOCAB = 2048, 151936
PADDED = 64


class Model(nn.Module):
    def forward(self, logits, ref_logits, weight):
        there = logits > float("-inf")
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            x, y = (value.float() if value.dtype == torch.bfloat16 else value for value in (leaf, ref_logits))
            logp, logq = torch.log_softmax(x, dim=-1), torch.log_softmax(y, dim=-1)
            kl = (logp.exp() * torch.where(there, logp - logq, 0.0)).sum(dim=-1)
            (gradient,) = torch.autograd.grad((weight * kl).sum(), leaf)
        return kl.detach(), gradient


def get_inputs():
    ref_logits = 3.0 * torch.randn(ROWS, VOCAB)
    logits = ref_logits + torch.randn(ROWS, VOCAB)
    weight = 0.5 + torch.rand(ROWS)
    spots = torch.randperm(ROWS)
    weight[spots[: ROWS // 8]] = 0.0
    same, low = spots[-2:].split(1)
    logits[same] = ref_logits[same]
    ref_logits[low] -= 90.0
    padding = torch.arange(VOCAB) >= VOCAB - PADDED
    inputs = [value.masked_fill(padding, float("-inf")).bfloat16() for value in (logits, ref_logits)]
    return [*inputs, weight]


def get_init_inputs():
    return []
