"""Gradient of the logits from gradients of the chosen tokens' log-probabilities and of the entropies.

logits (ROWS, VOCAB) bfloat16, ids (ROWS,) int64, temperature, grad_logp and grad_entropy (ROWS,) to bfloat16
(ROWS, VOCAB).

Conventions: the temperature divides the logits before both quantities, so the gradient is divided by it once more;
arithmetic is float32, the result is rounded once; a row whose two gradients are 0 has a gradient of exactly 0.
"""

import torch
import torch.nn as nn

ROWS, VOCAB = 2048, 151936


class Model(nn.Module):
    def forward(self, logits, ids, temperature, grad_logp, grad_entropy):
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            x = leaf.float() if leaf.dtype == torch.bfloat16 else leaf
            logp = torch.log_softmax(x / temperature[:, None], dim=-1)
            chosen = logp.gather(1, ids[:, None])[:, 0]
            entropy = -(logp.exp() * logp).sum(dim=-1)
            return torch.autograd.grad([chosen, entropy], leaf, [grad_logp, grad_entropy])[0]


def get_inputs():
    logits = 4.0 * torch.randn(ROWS, VOCAB)
    ids = torch.randint(VOCAB, (ROWS,))
    # Gradients of about one size: one that is far smaller would vanish beside the others' rounding.
    grad_logp = (torch.randint(2, (ROWS,)) * 2 - 1) * (0.5 + torch.rand(ROWS))
    grad_entropy = (torch.randint(2, (ROWS,)) * 2 - 1) * (0.2 + 0.3 * torch.rand(ROWS))
    spots = torch.randperm(ROWS)
    grad_logp[spots[: ROWS // 8]] = 0.0  # masked tokens
    grad_entropy[spots[: ROWS // 6]] = 0.0
    logits[spots[-1:]] -= 90.0
    return [logits.bfloat16(), ids, 0.7 + 0.6 * torch.rand(ROWS), grad_logp, grad_entropy]


def get_init_inputs():
    return []
