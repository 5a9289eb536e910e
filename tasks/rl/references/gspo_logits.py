"""GSPO's loss from logits, clipped by sequence, with the gradient of the logits.

logits (SEQUENCES, LENGTH, VOCAB) bfloat16, ids (SEQUENCES, LENGTH) int64, old_logp (SEQUENCES, LENGTH), lengths
(SEQUENCES,) int64, advantage and weight (SEQUENCES,) to: loss of each sequence, float32 (SEQUENCES,), and the gradient
of the sum of losses, bfloat16 like the logits.

Conventions:
- sequence ratio s = exp(mean of logp - old_logp over its first `lengths` tokens), the mean at most 10;
- loss = -weight * min(s A, clip(s, 1 - LOW, 1 + HIGH) A); the gradient passes through s;
- weight holds the normaliser, here about the length of the sequence, which gives each token the same say;
- an empty sequence has loss 0, and what is beyond a length has a gradient of exactly 0.
"""

import torch
import torch.nn as nn

SEQUENCES, LENGTH, VOCAB = 8, 256, 151936
LOW, HIGH = 0.1, 0.15


class Model(nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, logits, ids, old_logp, lengths, advantage, weight):
        valid = torch.arange(logits.shape[1], device=logits.device) < lengths[:, None]
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            x = leaf.float() if leaf.dtype == torch.bfloat16 else leaf
            logp = torch.log_softmax(x, dim=-1).gather(2, ids[..., None])[..., 0]
            mean = ((logp - old_logp) * valid).sum(dim=1) / lengths.clamp(min=1)
            ratio = mean.clamp(max=10.0).exp()
            plain, clipped = ratio * advantage, ratio.clamp(1.0 - self.low, 1.0 + self.high) * advantage
            loss = -weight * torch.where(plain <= clipped, plain, clipped) * (lengths > 0)
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), gradient


def get_inputs():
    logits = (4.0 * torch.randn(SEQUENCES, LENGTH, VOCAB)).bfloat16()
    ids = torch.randint(VOCAB, (SEQUENCES, LENGTH))
    logp = torch.log_softmax(logits.float(), dim=-1).gather(2, ids[..., None])[..., 0]
    lengths = torch.randint(2, LENGTH, (SEQUENCES,))
    order = torch.randperm(SEQUENCES)
    empty, single, full, clipped, other = order[:5].split(1)
    lengths[empty], lengths[single], lengths[full] = 0, 1, LENGTH
    advantage = (torch.randint(2, (SEQUENCES,)) * 2 - 1) * (0.7 + 0.6 * torch.rand(SEQUENCES))
    shift = 0.06 * torch.rand(SEQUENCES) - 0.03
    # One sequence beyond a bound whose gradient is cut, one beyond a bound whose gradient stays.
    shift[clipped], advantage[clipped] = 0.4, 1.0
    shift[other], advantage[other] = 0.4, -1.0
    noise = 0.3 * torch.randn(SEQUENCES, LENGTH)
    valid = torch.arange(LENGTH) < lengths[:, None]
    noise -= (noise * valid).sum(dim=1, keepdim=True) / lengths.clamp(min=1)[:, None]
    weight = lengths * (0.7 + 0.6 * torch.rand(SEQUENCES)) / (SEQUENCES * LENGTH)
    return [logits, ids, logp - noise - shift[:, None], lengths, advantage, weight]


def get_init_inputs():
    return [LOW, HIGH]
