"""Generalised Jensen-Shannon divergence between a student and a teacher, with the gradient of the student's logits.

student and teacher logits (ROWS, VOCAB) bfloat16, weight (ROWS,) to: divergence of each row, float32 (ROWS,), and the
gradient of sum(weight * divergence) for the student's logits, bfloat16 (ROWS, VOCAB).

Conventions: with the mixture m = BETA t + (1 - BETA) s the divergence is BETA KL(t || m) + (1 - BETA) KL(s || m), taken
in logarithms throughout; arithmetic is float32; a row of weight 0 has a gradient of exactly 0.
"""

import math

import torch
import torch.nn as nn

ROWS, VOCAB = 2048, 128256
BETA = 0.3


class Model(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, student, teacher, weight):
        with torch.enable_grad():
            leaf = student.detach().requires_grad_()
            x, y = (value.float() if value.dtype == torch.bfloat16 else value for value in (leaf, teacher))
            s, t = torch.log_softmax(x, dim=-1), torch.log_softmax(y, dim=-1)
            m = torch.logaddexp(s + math.log(1.0 - self.beta), t + math.log(self.beta))
            parts = self.beta * t.exp() * (t - m) + (1.0 - self.beta) * s.exp() * (s - m)
            divergence = parts.sum(dim=-1)
            (gradient,) = torch.autograd.grad((weight * divergence).sum(), leaf)
        return divergence.detach(), gradient


def get_inputs():
    teacher = 3.0 * torch.randn(ROWS, VOCAB)
    student = teacher + 2.0 * torch.randn(ROWS, VOCAB)
    weight = 0.5 + torch.rand(ROWS)
    spots = torch.randperm(ROWS)
    weight[spots[: ROWS // 8]] = 0.0
    same, low, other = spots[-3:].split(1)
    student[same] = teacher[same]
    teacher[low] -= 90.0
    student[other] = -student[other]  # what is likely for one is unlikely for the other
    return [student.bfloat16(), teacher.bfloat16(), weight]


def get_init_inputs():
    return [BETA]
