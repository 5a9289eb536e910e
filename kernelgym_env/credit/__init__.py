"""Credit: from the scores of turns to returns, advantages and the choice of samples.

Pure functions on NumPy arrays. Lists and torch tensors are taken too, on any device; results are NumPy arrays. They
need scores and keys only, so they serve any environment with several turns. Masks are True where a turn counts: faults,
padding and whatever else says nothing about the policy is left out with them.

- `turn_returns`, `tree_returns` -- returns of each turn of an episode, or of each node of a search tree.
- `improvements` -- what each turn adds to the best score so far.
- `pad` -- rows of different lengths as one array and its mask.
- `group_advantages`, `clipped_zscores` -- advantages within groups; CUDA-L1's clipped rewards.
- `gae` -- generalised advantages over turns.
- `prs_probabilities`, `prs_sample` -- rejection sampling by coverage (Dr. Kernel).
- `mrs_mask`, `tis_weights`, `mismatch_metrics` -- trainer against rollout engine.
- `best_at_k`, `pass_at_k` -- unbiased estimates from n samples.
"""

from __future__ import annotations

from kernelgym_env.credit.advantages import KINDS, SCOPES, clipped_zscores, group_advantages
from kernelgym_env.credit.estimators import best_at_k, pass_at_k
from kernelgym_env.credit.gae import Gae, gae
from kernelgym_env.credit.mismatch import LEVELS, mismatch_metrics, mrs_mask, tis_weights
from kernelgym_env.credit.rejection import prs_probabilities, prs_sample
from kernelgym_env.credit.returns import MODES, improvements, pad, tree_returns, turn_returns

__all__ = [
    "KINDS",
    "LEVELS",
    "MODES",
    "SCOPES",
    "Gae",
    "best_at_k",
    "clipped_zscores",
    "gae",
    "group_advantages",
    "improvements",
    "mismatch_metrics",
    "mrs_mask",
    "pad",
    "pass_at_k",
    "prs_probabilities",
    "prs_sample",
    "tis_weights",
    "tree_returns",
    "turn_returns",
]
