"""The whole chain of PPO for language models: scores, KL penalty, advantages, whitening, clipped loss and its gradient.

scores (SEQUENCES,), logp, old_logp, ref_logp and values (SEQUENCES, LENGTH), lengths (SEQUENCES,) int64 to: each
sequence's share of the loss (SEQUENCES,), gradient for logp, whitened advantages and returns (SEQUENCES, LENGTH).

Conventions:
- reward of a token: -BETA * (old_logp - ref_logp), and the sequence's score on top at its last token;
- A_t = delta_t + GAMMA LAMBDA A_(t+1) with delta_t = r_t + GAMMA V_(t+1) - V_t; the value after the last token is 0;
- returns are A + V, of the advantages before they are whitened;
- whitened over all valid tokens: (A - mean) / sqrt(var + EPS), the sum of squares divided by n - 1;
- the loss is the mean over all valid tokens of the batch, which is the sum of the sequences' shares, of
  -min(A r, A clip(r, 1 - CLIP, 1 + CLIP)) with r = exp(logp - old_logp), the whitened advantage being a constant; at
  equal branches the gradient is the unclipped one's;
- valid are the first `lengths` tokens of a sequence, which may be none; all results are exactly 0 beyond them.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SEQUENCES, LENGTH = 128, 8192
BETA, GAMMA, LAMBDA, CLIP, EPS = 0.05, 1.0, 0.95, 0.2, 1e-8


class Model(nn.Module):
    def __init__(self, beta, gamma, lam, clip):
        super().__init__()
        self.beta, self.gamma, self.lam, self.clip = beta, gamma, lam, clip

    def forward(self, scores, logp, old_logp, ref_logp, values, lengths):
        place = torch.arange(logp.shape[1], device=logp.device)
        valid = place < lengths[:, None]
        last = place == lengths[:, None] - 1
        rewards = torch.where(last, scores[:, None], 0.0) - self.beta * (old_logp - ref_logp)
        ahead = torch.where(last, 0.0, F.pad(values[:, 1:], (0, 1)))
        traces = torch.where(valid, rewards + self.gamma * ahead - values, 0.0)
        decay = self.gamma * self.lam * (valid & ~last).to(logp.dtype)
        step = 1
        while step < logp.shape[1]:  # after each pass a token has summed twice as many of those behind it
            traces = traces + decay * F.pad(traces[:, step:], (0, step))
            decay = decay * F.pad(decay[:, step:], (0, step))
            step *= 2
        returns = torch.where(valid, traces + values, 0.0)
        count = lengths.sum()
        centred = torch.where(valid, traces - traces.sum() / count, 0.0)
        advantages = centred * torch.rsqrt(centred.square().sum() / (count - 1) + EPS)
        with torch.enable_grad():
            leaf = logp.detach().requires_grad_()
            ratio = (leaf - old_logp).exp()
            plain, clipped = advantages * ratio, advantages * ratio.clamp(1.0 - self.clip, 1.0 + self.clip)
            loss = -torch.where(valid, torch.where(plain <= clipped, plain, clipped), 0.0).sum(dim=1) / count
            (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), gradient, advantages, returns


def get_inputs():
    lengths = torch.randint(2, LENGTH, (SEQUENCES,))
    empty, single, full = torch.randperm(SEQUENCES)[:3].split(1)
    lengths[empty], lengths[single], lengths[full] = 0, 1, LENGTH
    old_logp = -3.0 * torch.rand(SEQUENCES, LENGTH) ** 2 - 0.01
    log_ratio = 0.2 * torch.randn(SEQUENCES, LENGTH)
    for kink in (math.log(1.0 - CLIP), math.log(1.0 + CLIP)):
        # Not at a bound itself, where rounding would decide the gradient.
        log_ratio = torch.where((log_ratio - kink).abs() < 1e-3, kink + 2e-3, log_ratio)
    ref_logp = old_logp + 0.4 * torch.randn(SEQUENCES, LENGTH)
    values = 0.1 * torch.randn(SEQUENCES, LENGTH) + 0.5 * torch.randn(SEQUENCES, 1)
    scores = 2.0 * torch.randn(SEQUENCES)
    return [scores, old_logp + log_ratio, old_logp, ref_logp, values, lengths]


def get_init_inputs():
    return [BETA, GAMMA, LAMBDA, CLIP]
