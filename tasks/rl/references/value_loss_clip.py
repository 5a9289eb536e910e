"""PPO's clipped value loss, with the gradient of the values.

values, old_values and returns (SEQUENCES, LENGTH), mask (SEQUENCES, LENGTH) bool to: loss (), gradient for the values
(SEQUENCES, LENGTH), and the share of tokens whose clipped branch is the greater ().

Conventions: loss = mean over the mask of 0.5 * max((v - R)^2, (c - R)^2) with c = v where |v - old| <= CLIP, else old -
CLIP or old + CLIP; at equal branches the gradient is that of (v - R)^2, and the token counts as not clipped. Where the
mask is False anything may stand; the gradient is exactly 0 there.
"""

import torch
import torch.nn as nn

SEQUENCES, LENGTH = 128, 8192
CLIP = 0.2


class Model(nn.Module):
    def __init__(self, clip):
        super().__init__()
        self.clip = clip

    def forward(self, values, old_values, returns, mask):
        old_values, returns = torch.where(mask, old_values, 0.0), torch.where(mask, returns, 0.0)
        count = mask.sum().clamp(min=1)
        with torch.enable_grad():
            leaf = torch.where(mask, values, 0.0).requires_grad_()
            plain = (leaf - returns).square()
            moved = leaf - old_values
            near = torch.where(moved.abs() <= self.clip, leaf, old_values + moved.clamp(-self.clip, self.clip))
            clipped = (near - returns).square()
            loss = 0.5 * torch.where(mask, torch.where(plain >= clipped, plain, clipped), 0.0).sum() / count
            (gradient,) = torch.autograd.grad(loss, leaf)
        share = ((clipped > plain) & mask).sum().to(values.dtype) / count
        return loss.detach(), gradient, share


def get_inputs():
    old_values = torch.randn(SEQUENCES, LENGTH)
    moved = 0.2 * torch.randn(SEQUENCES, LENGTH)
    # Not at a place where rounding would decide between the branches: at the bound, or with the target in the middle
    # between the value and the clipped one.
    moved = torch.where((moved.abs() - CLIP).abs() < 1e-3, moved * 1.02, moved)
    values = old_values + moved
    returns = values + 0.3 * torch.randn(SEQUENCES, LENGTH)
    middle = 0.5 * (values + old_values + moved.clamp(-CLIP, CLIP))
    returns = torch.where((returns - middle).abs() < 1e-3, middle + 4e-3, returns)
    mask = torch.rand(SEQUENCES, LENGTH) < 0.8
    none, every = torch.randperm(SEQUENCES)[:2].split(1)
    mask[none], mask[every] = False, True
    # What is masked is not to be read: it would outweigh all else.
    return [torch.where(mask, values, 1e3 * torch.randn(SEQUENCES, LENGTH)), old_values, returns, mask]


def get_init_inputs():
    return [CLIP]
