"""From the times of kernels to normalised returns: milestones and clipped speedups, discounted over turns, whitened.

time, eager and compiled (EPISODES, TURNS) in one unit, correct (EPISODES, TURNS) bool, lengths (EPISODES,) int64 to
normalised returns (EPISODES, TURNS).

Conventions:
- reward of a turn: -1 if not correct; else 1, or 2 if time < (1 - MARGIN) * eager, or 3 if also
  time < (1 - MARGIN) * compiled (5% less time, which is more than 1.05 times as fast); a correct turn earns
  BONUS * min(eager / time, CAP) on top;
- return of turn t: the sum over t <= i < length of GAMMA^(i-t) reward_i;
- normalised: (G - mean) / (std + EPS) over all turns within their lengths, the sum of squares divided by n; 0 for the
  others.
"""

import torch
import torch.nn as nn

EPISODES, TURNS = 65536, 16
MARGIN, BONUS, CAP, GAMMA, EPS = 0.05, 0.3, 4.0, 0.4, 1e-8


class Model(nn.Module):
    def __init__(self, margin, bonus, cap, gamma):
        super().__init__()
        self.margin, self.bonus, self.cap, self.gamma = margin, bonus, cap, gamma

    def forward(self, time, eager, compiled, correct, lengths):
        reached = torch.arange(time.shape[1], device=time.device) < lengths[:, None]
        beats_eager = time < (1.0 - self.margin) * eager
        level = 1.0 + beats_eager.to(time.dtype)
        level = level + (beats_eager & (time < (1.0 - self.margin) * compiled)).to(time.dtype)
        reward = torch.where(correct, level + self.bonus * (eager / time).clamp(max=self.cap), -1.0)
        reward = torch.where(reached, reward, 0.0)
        ahead, returns = torch.zeros_like(reward[:, 0]), torch.empty_like(reward)
        for turn in reversed(range(reward.shape[1])):
            ahead = reward[:, turn] + self.gamma * ahead
            returns[:, turn] = ahead
        count = reached.sum().clamp(min=1)
        mean = returns.sum() / count
        centred = torch.where(reached, returns - mean, 0.0)
        return centred / ((centred.square().sum() / count).sqrt() + EPS)


def get_inputs():
    eager = (20.0 + 200.0 * torch.rand(EPISODES, 1)).expand(EPISODES, TURNS).contiguous()
    compiled = eager * (0.5 + 0.6 * torch.rand(EPISODES, 1))
    time = eager * torch.exp(0.8 * torch.randn(EPISODES, TURNS))
    for limit in ((1.0 - MARGIN) * eager, (1.0 - MARGIN) * compiled):
        # Not at a milestone itself, where rounding would decide.
        time = torch.where((time / limit - 1.0).abs() < 1e-3, 1.004 * limit, time)
    correct = torch.rand(EPISODES, TURNS) < 0.6
    lengths = torch.randint(1, TURNS, (EPISODES,))
    empty, single, full, never, always = torch.randperm(EPISODES)[:5].split(1)
    lengths[empty], lengths[single], lengths[full] = 0, 1, TURNS
    correct[never], correct[always] = False, True
    return [time, eager, compiled, correct, lengths]


def get_init_inputs():
    return [MARGIN, BONUS, CAP, GAMMA]
