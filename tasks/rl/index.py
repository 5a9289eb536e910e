"""What the suite `rl` holds, in order.

- `RlEntry` -- one task, without its source.
- `INDEX` -- all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym_env.tasks.packaged import Entry

__all__ = ["INDEX", "RlEntry"]

_WEIGHED = ("permuted",)
"""For inputs of which one was made to fit another, such as two policies' log-probabilities: only their order varies."""

_FIXED: tuple[str, ...] = ()
"""For losses that are clipped: a value moved to where a branch begins makes the gradient a matter of rounding, and a
ratio of two policies that have nothing to do with each other overflows."""


@dataclass(frozen=True)
class RlEntry(Entry):
    """A task of the suite; its id is ``KernelRL/<name>``.

    Attributes:
        input_laws: the value laws that its inputs bear by their meaning; None for all.
    """

    input_laws: tuple[str, ...] | None = None


INDEX = (
    RlEntry(
        "TokenLogp",
        "Token log-probabilities",
        2,
        "Log-probability of the chosen token of each row of bfloat16 logits, with a temperature per row.",
        ("logits", "softmax", "reduction", "integer-input", "bfloat16", "memory-bound"),
        {"ROWS": 48, "VOCAB": 5003},
    ),
    RlEntry(
        "TokenLogpEntropy",
        "Token log-probabilities and entropies",
        2,
        "Log-probability of the chosen token and entropy of each row of logits, some of them minus infinity.",
        ("logits", "softmax", "reduction", "integer-input", "tuple-output", "bfloat16", "memory-bound"),
        {"ROWS": 48, "VOCAB": 5003},
    ),
    RlEntry(
        "LogpBackward",
        "Backward pass of log-probability and entropy",
        2,
        "Gradient of the logits from gradients of the chosen log-probabilities and of the entropies.",
        ("logits", "softmax", "gradient", "integer-input", "bfloat16", "memory-bound"),
        {"ROWS": 48, "VOCAB": 5003},
    ),
    RlEntry(
        "PpoClipLogits",
        "PPO loss from logits, with gradient",
        2,
        "PPO's clipped loss with dual clip from logits, and the gradient of the logits.",
        ("logits", "softmax", "loss", "gradient", "tuple-output", "integer-input", "bfloat16", "memory-bound"),
        {"ROWS": 48, "VOCAB": 5003},
        _FIXED,
    ),
    RlEntry(
        "GrpoKlEntropy",
        "GRPO loss with KL and entropy from logits, with gradient",
        2,
        "GRPO's clipped loss with k3 penalty and entropy bonus from logits, and the gradient of the logits.",
        ("logits", "softmax", "loss", "gradient", "tuple-output", "integer-input", "bfloat16", "memory-bound"),
        {"ROWS": 48, "VOCAB": 5003},
        _FIXED,
    ),
    RlEntry(
        "CispoLogits",
        "CISPO loss from logits, with gradient",
        2,
        "CISPO's loss, whose bounded ratio is a constant, from logits, and the gradient of the logits.",
        ("logits", "softmax", "loss", "gradient", "tuple-output", "integer-input", "bfloat16", "memory-bound"),
        {"ROWS": 48, "VOCAB": 5003},
        _FIXED,
    ),
    RlEntry(
        "GspoLogits",
        "GSPO loss from logits, with gradient",
        3,
        "GSPO's loss, clipped by the ratio of whole sequences, from logits, and the gradient of the logits.",
        ("logits", "softmax", "loss", "gradient", "lengths", "tuple-output", "bfloat16", "memory-bound"),
        {"SEQUENCES": 6, "LENGTH": 12, "VOCAB": 3001},
        _FIXED,
    ),
    RlEntry(
        "DpoLogits",
        "DPO loss from logits, with gradient",
        3,
        "DPO's loss of pairs of responses from logits, and the gradient of the logits.",
        ("logits", "softmax", "loss", "gradient", "lengths", "tuple-output", "bfloat16", "memory-bound"),
        {"PAIRS": 3, "LENGTH": 12, "VOCAB": 3001},
        _FIXED,
    ),
    RlEntry(
        "FullKl",
        "KL divergence over the vocabulary, with gradient",
        2,
        "KL divergence between two policies over the whole vocabulary, and the gradient of the first one's logits.",
        ("logits", "softmax", "loss", "gradient", "tuple-output", "bfloat16", "memory-bound"),
        {"ROWS": 32, "VOCAB": 5003},
    ),
    RlEntry(
        "JsdDistill",
        "Jensen-Shannon distillation, with gradient",
        2,
        "Generalised Jensen-Shannon divergence of student and teacher, and the gradient of the student's logits.",
        ("logits", "softmax", "loss", "gradient", "tuple-output", "bfloat16", "memory-bound"),
        {"ROWS": 32, "VOCAB": 5003},
    ),
    RlEntry(
        "LinearLogp",
        "Token log-probabilities from hidden states",
        3,
        "Output layer and log-probability of the chosen token, without logits in memory if you can.",
        ("matmul", "softmax", "weights", "integer-input", "bfloat16", "fusion", "compute-bound"),
        {"ROWS": 32, "WIDTH": 64, "VOCAB": 2003},
    ),
    RlEntry(
        "LinearGrpo",
        "GRPO loss from hidden states, with gradients",
        3,
        "Output layer and GRPO's clipped loss, with the gradients of hidden states and layer.",
        ("matmul", "softmax", "loss", "gradient", "weights", "tuple-output", "bfloat16", "fusion", "compute-bound"),
        {"ROWS": 32, "WIDTH": 64, "VOCAB": 1003},
        _FIXED,
    ),
    RlEntry(
        "TopEntropyMask",
        "Mask of the most uncertain tokens",
        2,
        "Which tokens are among the fifth of greatest entropy of the whole batch.",
        ("selection", "lengths", "boolean-output", "memory-bound"),
        {"SEQUENCES": 16, "LENGTH": 256},
    ),
    RlEntry(
        "Gae",
        "Generalised advantages",
        1,
        "Generalised advantage estimation and value targets of rows of steps.",
        ("scan", "advantages", "tuple-output", "memory-bound"),
        {"ENVIRONMENTS": 24, "STEPS": 100},
    ),
    RlEntry(
        "GaeBig",
        "Generalised advantages, time first",
        1,
        "Generalised advantage estimation of many environments, time first, with flags for starts of episodes.",
        ("scan", "advantages", "layout", "tuple-output", "memory-bound"),
        {"STEPS": 100, "ENVIRONMENTS": 300},
    ),
    RlEntry(
        "GaeTruncated",
        "Generalised advantages with truncation",
        1,
        "Generalised advantage estimation in which a cut episode has a value after its last step.",
        ("scan", "advantages", "tuple-output", "memory-bound"),
        {"ENVIRONMENTS": 24, "STEPS": 100},
    ),
    RlEntry(
        "GaeRagged",
        "Generalised advantages of packed sequences",
        2,
        "Generalised advantage estimation of sequences of very different lengths, one behind the other.",
        ("scan", "advantages", "lengths", "integer-input", "tuple-output", "memory-bound"),
        {"TOKENS": 900, "SEQUENCES": 12},
    ),
    RlEntry(
        "GaeLong",
        "Generalised advantages of long rows",
        2,
        "Generalised advantage estimation of a few very long rows with a decay near 1.",
        ("scan", "advantages", "tuple-output", "memory-bound"),
        {"ENVIRONMENTS": 3, "STEPS": 1500},
    ),
    RlEntry(
        "Vtrace",
        "V-trace",
        2,
        "V-trace targets and policy-gradient advantages from the steps of another policy.",
        ("scan", "advantages", "off-policy", "tuple-output", "memory-bound"),
        {"ENVIRONMENTS": 24, "STEPS": 100},
        _WEIGHED,
    ),
    RlEntry(
        "Retrace",
        "Retrace",
        2,
        "Retrace targets for the values of the actions taken by another policy.",
        ("scan", "off-policy", "memory-bound"),
        {"ENVIRONMENTS": 24, "STEPS": 100},
        _WEIGHED,
    ),
    RlEntry(
        "LambdaReturns",
        "Lambda returns",
        1,
        "Lambda returns with a discount of its own for each step.",
        ("scan", "memory-bound"),
        {"ROWS": 24, "STEPS": 100},
    ),
    RlEntry(
        "TurnReturns",
        "Returns of turns",
        2,
        "Returns of the tokens of conversations, discounted per turn, with the tool's tokens left out.",
        ("scan", "lengths", "mask", "integer-input", "memory-bound"),
        {"SEQUENCES": 12, "LENGTH": 200, "TURNS": 8},
    ),
    RlEntry(
        "GroupAdvantage",
        "Group-normalised advantages",
        2,
        "Rewards normalised within groups of different sizes.",
        ("reduction", "advantages", "lengths", "integer-input"),
        {"GROUPS": 128},
    ),
    RlEntry(
        "RlooTrloo",
        "Leave-one-out advantages",
        2,
        "Leave-one-out advantages of whole trajectories and of each turn.",
        ("reduction", "advantages", "lengths", "integer-input", "tuple-output"),
        {"GROUPS": 128},
    ),
    RlEntry(
        "GrpoElementwise",
        "GRPO loss under four normalisers",
        2,
        "GRPO's clipped loss of log-probabilities under four normalisers, with a gradient.",
        ("elementwise", "loss", "gradient", "lengths", "padding", "tuple-output", "memory-bound"),
        {"SEQUENCES": 16, "LENGTH": 250},
        _FIXED,
    ),
    RlEntry(
        "ValueLossClip",
        "Clipped value loss, with gradient",
        1,
        "PPO's clipped value loss under a mask, with the gradient of the values.",
        ("elementwise", "loss", "gradient", "mask", "padding", "tuple-output", "memory-bound"),
        {"SEQUENCES": 16, "LENGTH": 250},
        _FIXED,
    ),
    RlEntry(
        "MaskedWhiten",
        "Masked whitening",
        2,
        "Values under a mask, brought to mean 0 and variance 1 over the whole batch.",
        ("reduction", "mask", "memory-bound"),
        {"SEQUENCES": 32, "LENGTH": 500},
    ),
    RlEntry(
        "RewardPipeline",
        "From times to normalised returns",
        2,
        "Milestones and clipped speedups from times, discounted over turns and normalised.",
        ("elementwise", "scan", "reduction", "lengths", "fusion"),
        {"EPISODES": 512},
        _FIXED,
    ),
    RlEntry(
        "RunningNormalize",
        "Running statistics and normalisation",
        2,
        "Running mean and variance updated by a batch of observations, and the batch normalised by them.",
        ("reduction", "norm", "tuple-output", "memory-bound"),
        {"BATCH": 512, "WIDTH": 48},
    ),
    RlEntry(
        "PrioritizedSample",
        "Prioritised replay",
        2,
        "Stratified draw of items by priority from a replay buffer, with importance weights.",
        ("scan", "search", "integer-input", "integer-output", "tuple-output", "memory-bound"),
        {"ITEMS": 20000, "DRAWS": 256},
        _WEIGHED,
    ),
    RlEntry(
        "RbfQ",
        "Action values of a Gaussian process",
        2,
        "Mean of all action values and the variance from kernels to a dictionary of states.",
        ("matmul", "exponential", "tuple-output", "fusion", "compute-bound"),
        {"ROWS": 200, "ATOMS": 64},
        _WEIGHED,
    ),
    RlEntry(
        "RewardToLoss",
        "From scores to PPO's loss",
        3,
        "The whole chain of PPO for language models: KL penalty, advantages, whitening, clipped loss and its gradient.",
        ("scan", "reduction", "loss", "gradient", "lengths", "tuple-output", "fusion", "memory-bound"),
        {"SEQUENCES": 12, "LENGTH": 150},
        _FIXED,
    ),
)
