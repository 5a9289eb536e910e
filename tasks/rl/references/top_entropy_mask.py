"""Which tokens are among the share of greatest entropy in the whole batch: bool (SEQUENCES, LENGTH).

entropy (SEQUENCES, LENGTH) float32, lengths (SEQUENCES,) int64.

Conventions: of the n valid tokens (the first `lengths` of each row) the ceil(n / ONE_IN) of greatest entropy are kept
(at least one), and with them every valid token that equals the least of these. The threshold is an entropy that occurs;
nothing is interpolated. What is beyond a length is False.
"""

import torch
import torch.nn as nn

SEQUENCES, LENGTH = 128, 8192
ONE_IN = 5


class Model(nn.Module):
    def forward(self, entropy, lengths):
        valid = torch.arange(entropy.shape[1], device=entropy.device) < lengths[:, None]
        kept = ((lengths.sum() + ONE_IN - 1) // ONE_IN).clamp(min=1)
        order = torch.where(valid, entropy, -1.0).flatten().sort(descending=True).values
        return valid & (entropy >= order.gather(0, kept[None] - 1))


def get_inputs():
    # Most tokens are nearly certain, some are not; many entropies are 0, and some are equal.
    entropy = torch.rand(SEQUENCES, LENGTH) ** 4 * (1.0 + 4.0 * torch.rand(SEQUENCES, 1))
    entropy = torch.where(torch.rand(SEQUENCES, LENGTH) < 0.1, 0.0, entropy)
    entropy = torch.where(torch.rand(SEQUENCES, LENGTH) < 0.2, (entropy * 64.0).round() / 64.0, entropy)
    lengths = torch.randint(2, LENGTH, (SEQUENCES,))
    empty, single, full = torch.randperm(SEQUENCES)[:3].split(1)
    lengths[empty], lengths[single], lengths[full] = 0, 1, LENGTH
    return [entropy, lengths]


def get_init_inputs():
    return []
