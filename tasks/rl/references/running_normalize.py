"""Running mean and variance of observations, updated by a batch, and the batch normalised by them.

observations (BATCH, WIDTH), mean and variance (WIDTH,), count () to normalised (BATCH, WIDTH), new mean (WIDTH,) and
new variance (WIDTH,).

Conventions: variances are divided by n; the statistics are merged by Chan's rule with the weights count and BATCH;
the batch is normalised by the new ones, (x - mean) / sqrt(variance + EPS), and kept within -CLIP and CLIP.
"""

import torch
import torch.nn as nn

BATCH, WIDTH = 65536, 256
EPS, CLIP = 1e-8, 5.0


class Model(nn.Module):
    def __init__(self, clip):
        super().__init__()
        self.clip = clip

    def forward(self, observations, mean, variance, count):
        batch = observations.shape[0]
        batch_mean = observations.mean(dim=0)
        batch_variance = (observations - batch_mean).square().mean(dim=0)
        total, shift = count + batch, batch_mean - mean
        new_mean = mean + shift * (batch / total)
        squares = variance * count + batch_variance * batch + shift.square() * (count * batch / total)
        new_variance = squares / total
        normalised = (observations - new_mean) / (new_variance + EPS).sqrt()
        return normalised.clamp(-self.clip, self.clip), new_mean, new_variance


def get_inputs():
    middle, scale = 2.0 * torch.randn(WIDTH), 0.3 + torch.rand(WIDTH)
    observations = middle + scale * torch.randn(BATCH, WIDTH)
    constant, outlier = torch.randperm(WIDTH)[:2].split(1)
    observations[:, constant] = middle[constant]  # a sensor that stands still
    observations[torch.randint(BATCH, (1,)), outlier] = 40.0
    mean, variance = middle + 0.3 * torch.randn(WIDTH), (scale * (0.7 + 0.6 * torch.rand(WIDTH))).square()
    count = torch.randint(BATCH // 4, 4 * BATCH, ()).to(mean.dtype)
    return [observations, mean, variance, count]


def get_init_inputs():
    return [CLIP]
