"""GRPO's loss from logits, with a KL penalty and an entropy bonus, and the gradient of the logits.

logits (ROWS, VOCAB) bfloat16, ids (ROWS,) int64, old_logp, ref_logp, advantage and weight (ROWS,) to: loss of each row,
float32 (ROWS,), and the gradient of the sum of losses, bfloat16 (ROWS, VOCAB).

Conventions:
- ratio r = exp(logp - old_logp), the difference kept within -20 and 20 (no gradient outside);
- loss = weight * (-min(A r, A clip(r, 1 - LOW, 1 + HIGH)) + BETA * k3 - BONUS * entropy); at equal branches of the
  minimum the gradient is the unclipped one's;
- k3 = exp(d) - d - 1 with d = ref_logp - logp kept within -20 and 20, and k3 at most 10 (no gradient outside);
- a row of weight 0 has loss 0 and gradient 0 exactly.
"""

import math

import torch
import torch.nn as nn

ROWS, VOCAB = 2048, 151936
LOW, HIGH, BETA, BONUS = 0.2, 0.28, 0.2, 0.05


class Model(nn.Module):
    def __init__(self, low, high, beta, bonus):
        super().__init__()
        self.low, self.high, self.beta, self.bonus = low, high, beta, bonus

    def forward(self, logits, ids, old_logp, ref_logp, advantage, weight):
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            x = leaf.float() if leaf.dtype == torch.bfloat16 else leaf
            all_logp = torch.log_softmax(x, dim=-1)
            logp = all_logp.gather(1, ids[:, None])[:, 0]
            entropy = -(all_logp.exp() * all_logp).sum(dim=-1)
            ratio = (logp - old_logp).clamp(-20.0, 20.0).exp()
            plain, clipped = advantage * ratio, advantage * ratio.clamp(1.0 - self.low, 1.0 + self.high)
            gain = torch.where(plain <= clipped, plain, clipped)
            apart = (ref_logp - logp).clamp(-20.0, 20.0)
            k3 = (apart.exp() - apart - 1.0).clamp(max=10.0)
            loss = weight * (self.beta * k3 - gain - self.bonus * entropy)
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), gradient


def get_inputs():
    logits = (4.0 * torch.randn(ROWS, VOCAB)).bfloat16()
    ids = torch.randint(VOCAB, (ROWS,))
    logp = torch.log_softmax(logits.float(), dim=-1).gather(1, ids[:, None])[:, 0]
    # Losses of about one size: a row that is far smaller would vanish beside the others' rounding.
    advantage = (torch.randint(2, (ROWS,)) * 2 - 1) * (0.7 + 0.6 * torch.rand(ROWS))
    weight = (0.7 + 0.6 * torch.rand(ROWS)) / ROWS
    log_ratio, apart = 0.3 * torch.randn(ROWS), 0.5 * torch.randn(ROWS)
    for kink in (math.log(1.0 - LOW), math.log(1.0 + HIGH)):
        # Not at a bound itself, where rounding would decide the gradient.
        log_ratio = torch.where((log_ratio - kink).abs() < 2e-3, kink + 4e-3, log_ratio)
    spots = torch.randperm(ROWS)
    weight[spots[: ROWS // 8]] = 0.0
    none, far, further, capped, same = spots[-5:].split(1)
    advantage[none] = 0.0
    log_ratio[far], log_ratio[further], log_ratio[same] = 25.0, -25.0, 0.0
    advantage[far] = 1.0
    apart[capped], apart[same], apart[further] = 4.0, 0.0, -25.0
    return [logits, ids, logp - log_ratio, logp + apart, advantage, weight]


def get_init_inputs():
    return [LOW, HIGH, BETA, BONUS]
