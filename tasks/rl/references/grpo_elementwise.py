"""GRPO's clipped loss on log-probabilities under four normalisers, with the gradient under one of them.

logp, old_logp and ref_logp (SEQUENCES, LENGTH), advantage (SEQUENCES,), lengths (SEQUENCES,) int64 to: losses (4,), the
gradient of the second of them for logp (SEQUENCES, LENGTH), and the share of clipped tokens ().

Conventions:
- per token: -min(A r, A clip(r, 1 - LOW, 1 + HIGH)) + BETA * k3 with r = exp(logp - old_logp), the difference kept
  within -20 and 20, and k3 = exp(d) - d - 1, d = ref_logp - logp kept within -20 and 20 (no gradient outside);
- at equal branches of the minimum the gradient is the unclipped one's, and the token counts as not clipped;
- losses: "grpo", the mean over all sequences of each one's mean, 0 for an empty one; "dapo", the sum over all valid
  tokens by their number; "dr_grpo", the sum by SEQUENCES * LENGTH; "token sum", the sum by LENGTH;
- valid are the first `lengths` tokens of a sequence. What is beyond them may hold anything and has a gradient of
  exactly 0.
"""

import math

import torch
import torch.nn as nn

SEQUENCES, LENGTH = 128, 8192
LOW, HIGH, BETA = 0.2, 0.28, 0.04


class Model(nn.Module):
    def __init__(self, low, high, beta):
        super().__init__()
        self.low, self.high, self.beta = low, high, beta

    def forward(self, logp, old_logp, ref_logp, advantage, lengths):
        valid = torch.arange(logp.shape[1], device=logp.device) < lengths[:, None]
        old_logp, ref_logp = torch.where(valid, old_logp, 0.0), torch.where(valid, ref_logp, 0.0)
        with torch.enable_grad():
            leaf = torch.where(valid, logp, 0.0).requires_grad_()
            ratio = (leaf - old_logp).clamp(-20.0, 20.0).exp()
            plain = advantage[:, None] * ratio
            clipped = advantage[:, None] * ratio.clamp(1.0 - self.low, 1.0 + self.high)
            apart = (ref_logp - leaf).clamp(-20.0, 20.0)
            loss = self.beta * (apart.exp() - apart - 1.0) - torch.where(plain <= clipped, plain, clipped)
            loss = torch.where(valid, loss, 0.0)
            rows, tokens = loss.sum(dim=1), lengths.sum().clamp(min=1)
            total, size = rows.sum(), logp.shape[0] * logp.shape[1]
            dapo = total / tokens
            (gradient,) = torch.autograd.grad(dapo, leaf)
        grpo = (rows / lengths.clamp(min=1)).mean()
        losses = torch.stack([grpo, dapo, total / size, total / logp.shape[1]])
        share = ((plain > clipped) & valid).sum().to(logp.dtype) / tokens
        return losses.detach(), gradient, share


def get_inputs():
    lengths = torch.randint(2, LENGTH, (SEQUENCES,))
    advantage = (torch.randint(2, (SEQUENCES,)) * 2 - 1) * (0.5 + torch.rand(SEQUENCES))
    empty, single, full, none, far = torch.randperm(SEQUENCES)[:5].split(1)
    lengths[empty], lengths[single], lengths[full] = 0, 1, LENGTH
    advantage[none], advantage[far] = 0.0, 1.0
    logp = -3.0 * torch.rand(SEQUENCES, LENGTH) ** 2
    log_ratio = 0.3 * torch.randn(SEQUENCES, LENGTH)
    for kink in (math.log(1.0 - LOW), math.log(1.0 + HIGH)):
        # Not at a bound itself, where rounding would decide the gradient.
        log_ratio = torch.where((log_ratio - kink).abs() < 1e-3, kink + 2e-3, log_ratio)
    log_ratio[far, :2] = torch.tensor([25.0, -25.0])
    ref_logp = logp + 0.3 * torch.randn(SEQUENCES, LENGTH)
    beyond = torch.arange(LENGTH) >= lengths[:, None]
    # Padding is not to be read: what stands there would outweigh all else.
    noise = 30.0 * torch.rand(3, SEQUENCES, LENGTH)
    logp, old_logp, ref_logp = torch.where(beyond, noise, torch.stack([logp, logp - log_ratio, ref_logp]))
    return [logp, old_logp, ref_logp, advantage, lengths]


def get_init_inputs():
    return [LOW, HIGH, BETA]
