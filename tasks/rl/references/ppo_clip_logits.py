"""PPO's clipped loss from logits, with the gradient of the logits.

logits (ROWS, VOCAB) bfloat16, ids (ROWS,) int64, temperature, old_logp, advantage and weight (ROWS,) to: loss of each
row and log-probability of its token, float32 (ROWS,), and the gradient of the sum of losses, bfloat16 (ROWS, VOCAB).

Conventions:
- ratio r = exp(logp - old_logp), the difference kept within -20 and 20 (no gradient outside);
- loss = weight * max(-A r, -A clip(r, 1 - LOW, 1 + HIGH)), and for A < 0 at most -A * DUAL ("dual clip"); at equal
  branches the gradient is the unclipped one's;
- weight holds the mask and every normaliser; a row of weight 0 has loss 0 and gradient 0 exactly.
"""

import math

import torch
import torch.nn as nn

ROWS, VOCAB = 2048, 151936
LOW, HIGH, DUAL = 0.2, 0.28, 3.0


class Model(nn.Module):
    def __init__(self, low, high, dual):
        super().__init__()
        self.low, self.high, self.dual = low, high, dual

    def forward(self, logits, ids, temperature, old_logp, advantage, weight):
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            x = leaf.float() if leaf.dtype == torch.bfloat16 else leaf
            logp = torch.log_softmax(x / temperature[:, None], dim=-1).gather(1, ids[:, None])[:, 0]
            ratio = (logp - old_logp).clamp(-20.0, 20.0).exp()
            plain, clipped = -advantage * ratio, -advantage * ratio.clamp(1.0 - self.low, 1.0 + self.high)
            loss = torch.where(plain >= clipped, plain, clipped)
            bound = -advantage * self.dual
            loss = weight * torch.where((advantage < 0) & (loss > bound), bound, loss)
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), logp.detach(), gradient


def get_inputs():
    logits, temperature = 4.0 * torch.randn(ROWS, VOCAB), 0.7 + 0.6 * torch.rand(ROWS)
    ids = torch.randint(VOCAB, (ROWS,))
    logits = logits.bfloat16()
    logp = torch.log_softmax(logits.float() / temperature[:, None], dim=-1).gather(1, ids[:, None])[:, 0]
    # Losses of about one size: a row that is far smaller would vanish beside the others' rounding.
    advantage = (torch.randint(2, (ROWS,)) * 2 - 1) * (0.7 + 0.6 * torch.rand(ROWS))
    weight = (0.7 + 0.6 * torch.rand(ROWS)) / ROWS
    log_ratio = 0.3 * torch.randn(ROWS)
    for kink in (math.log(1.0 - LOW), math.log(1.0 + HIGH), math.log(DUAL)):
        # Not at a bound itself, where rounding would decide the gradient.
        log_ratio = torch.where((log_ratio - kink).abs() < 2e-3, kink + 4e-3, log_ratio)
    spots = torch.randperm(ROWS)
    weight[spots[: ROWS // 8]] = 0.0
    none, far, further, dual, same = spots[-5:].split(1)
    advantage[none] = 0.0
    log_ratio[far], log_ratio[further], log_ratio[dual], log_ratio[same] = 25.0, -25.0, 1.5, 0.0
    advantage[far], advantage[dual] = 1.0, -1.0
    return [logits, ids, temperature, logp - log_ratio, advantage, weight]


def get_init_inputs():
    return [LOW, HIGH, DUAL]
