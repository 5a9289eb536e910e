"""What the suite `core` holds, in order.

- `Entry` -- one task, without its source.
- `INDEX` -- all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelgym_env.tasks.source import Number

__all__ = ["INDEX", "Entry"]


@dataclass(frozen=True)
class Entry:
    """A task of the suite.

    Attributes:
        name: its id after ``KernelGym/``.
        title: a few words.
        level: 1 single operators, 2 fused chains, 3 blocks of networks.
        description: one sentence.
        tags: words to select by.
        cpu: sizes at which an eager call on two CPU cores takes between 0.3 and 20 ms.
    """

    name: str
    title: str
    level: int
    description: str
    tags: tuple[str, ...]
    cpu: Mapping[str, Number] = field(hash=False)

    @property
    def file(self) -> str:
        """Stem of the reference's file: the name in snake case."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()


INDEX = (
    Entry(
        "ElementwiseChain",
        "Elementwise chain",
        1,
        "Affine map per column, clamp, damping, gate and residual, elementwise over a matrix.",
        ("elementwise", "memory-bound"),
        {"ROWS": 1536, "COLUMNS": 2560},
    ),
    Entry(
        "GeluTanh",
        "GELU, tanh form",
        1,
        "GELU in its tanh form, elementwise.",
        ("elementwise", "activation", "memory-bound"),
        {"ROWS": 1024, "COLUMNS": 2048},
    ),
    Entry(
        "SwiGlu",
        "SwiGLU gate",
        1,
        "The first half of each row passes through SiLU and multiplies the second half.",
        ("elementwise", "activation", "memory-bound"),
        {"ROWS": 1024, "WIDTH": 2000},
    ),
    Entry(
        "RowSum",
        "Row sums",
        1,
        "Sum of each row of a matrix.",
        ("reduction", "memory-bound"),
        {"ROWS": 4096, "COLUMNS": 3000},
    ),
    Entry(
        "ColumnSum",
        "Weighted column sums",
        1,
        "Sum over the rows of a matrix, each row with a weight.",
        ("reduction", "memory-bound"),
        {"ROWS": 1536, "COLUMNS": 2000},
    ),
    Entry(
        "ColumnMax",
        "Column maxima",
        1,
        "Greatest value of each column of each matrix in a batch.",
        ("reduction", "memory-bound"),
        {"BATCH": 8, "ROWS": 512, "COLUMNS": 1024},
    ),
    Entry(
        "RowArgmax",
        "Row argmax",
        1,
        "Position of the greatest value in each row of a matrix.",
        ("reduction", "integer-output", "memory-bound"),
        {"ROWS": 1024, "COLUMNS": 3000},
    ),
    Entry(
        "RowSoftmax",
        "Row softmax",
        1,
        "Softmax over each row of a matrix.",
        ("softmax", "reduction", "memory-bound"),
        {"ROWS": 2048, "COLUMNS": 2000},
    ),
    Entry(
        "RowLogSoftmax",
        "Row log-softmax with temperature",
        1,
        "Logarithm of the softmax over each row, after division by a temperature.",
        ("softmax", "reduction", "memory-bound"),
        {"ROWS": 400, "COLUMNS": 5000},
    ),
    Entry(
        "MaskedSoftmax",
        "Masked row softmax",
        2,
        "Softmax over those entries of each row that a boolean mask keeps.",
        ("softmax", "reduction", "mask", "memory-bound"),
        {"ROWS": 1024, "COLUMNS": 1000},
    ),
    Entry(
        "LayerNorm",
        "Layer normalisation",
        1,
        "Layer normalisation over the last dimension, with weight and bias.",
        ("norm", "reduction", "weights", "memory-bound"),
        {"ROWS": 2048, "WIDTH": 1536},
    ),
    Entry(
        "RmsNorm",
        "RMS normalisation",
        1,
        "Root mean square normalisation over the last dimension, with a weight.",
        ("norm", "reduction", "weights", "memory-bound"),
        {"ROWS": 1024, "WIDTH": 1536},
    ),
    Entry(
        "GroupNorm",
        "Group normalisation",
        1,
        "Group normalisation of images, with weight and bias per channel.",
        ("norm", "reduction", "weights", "memory-bound"),
        {"BATCH": 16, "CHANNELS": 48, "SIDE": 64},
    ),
    Entry(
        "BatchNorm",
        "Batch normalisation",
        1,
        "Normalisation of images by the statistics of the batch, with weight and bias per channel.",
        ("norm", "reduction", "weights", "memory-bound"),
        {"BATCH": 16, "CHANNELS": 32, "SIDE": 64},
    ),
    Entry(
        "Matmul",
        "Matrix product",
        1,
        "Product of two matrices.",
        ("matmul", "compute-bound"),
        {"M": 512, "K": 512, "N": 512},
    ),
    Entry(
        "BatchedMatmul",
        "Batched matrix product",
        1,
        "Products of the matrices of two batches.",
        ("matmul", "compute-bound"),
        {"BATCH": 24, "M": 200, "K": 160, "N": 200},
    ),
    Entry(
        "MatmulTransposed",
        "Product of two transposed matrices",
        1,
        "Product of two matrices that are both stored transposed.",
        ("matmul", "compute-bound"),
        {"M": 384, "K": 1000, "N": 384},
    ),
    Entry(
        "MatmulSkinny",
        "Few rows times a large weight",
        1,
        "Product of a few rows with a large weight matrix, as in decoding.",
        ("matmul", "weights", "memory-bound"),
        {"INPUT": 1536, "OUTPUT": 2048},
    ),
    Entry(
        "Conv1d",
        "1D convolution",
        1,
        "Convolution over sequences, with bias and padding.",
        ("convolution", "weights", "compute-bound"),
        {"BATCH": 8, "INPUT": 32, "OUTPUT": 48, "LENGTH": 2048},
    ),
    Entry(
        "Conv2d",
        "2D convolution",
        1,
        "3x3 convolution of images, with bias and padding.",
        ("convolution", "weights", "compute-bound"),
        {"BATCH": 8, "INPUT": 16, "OUTPUT": 32, "SIDE": 56},
    ),
    Entry(
        "DepthwiseConv2d",
        "Depthwise 2D convolution",
        1,
        "3x3 convolution of images in which every channel has a kernel of its own.",
        ("convolution", "weights", "memory-bound"),
        {"BATCH": 8, "CHANNELS": 64, "SIDE": 56},
    ),
    Entry(
        "MaxPool2d",
        "2D maximum pooling",
        1,
        "Greatest value in overlapping 3x3 windows with stride 2.",
        ("pooling", "memory-bound"),
        {"BATCH": 4, "CHANNELS": 32, "SIDE": 112},
    ),
    Entry(
        "AvgPool1d",
        "1D mean pooling",
        1,
        "Mean over sliding windows of a sequence.",
        ("pooling", "memory-bound"),
        {"BATCH": 8, "CHANNELS": 64, "LENGTH": 2048},
    ),
    Entry(
        "RowCumsum",
        "Row cumulative sums",
        1,
        "Running sum along each row of a matrix.",
        ("scan", "memory-bound"),
        {"ROWS": 1024, "COLUMNS": 3000},
    ),
    Entry(
        "EmbeddingGather",
        "Embedding lookup",
        1,
        "Rows of a table by index, scaled.",
        ("gather", "weights", "integer-input", "memory-bound"),
        {"TOKENS": 8192, "VOCABULARY": 5000, "WIDTH": 256},
    ),
    Entry(
        "ScatterAdd",
        "Scatter-add into buckets",
        1,
        "Values of each row, summed per bucket and added to a base.",
        ("scatter", "integer-input", "memory-bound"),
        {"ROWS": 512, "COLUMNS": 4000},
    ),
    Entry(
        "CrossEntropy",
        "Cross entropy",
        1,
        "Cross entropy of each row of logits against an integer target.",
        ("loss", "reduction", "integer-input", "memory-bound"),
        {"TOKENS": 512, "VOCABULARY": 5000},
    ),
    Entry(
        "HuberLoss",
        "Huber loss",
        1,
        "Huber loss between prediction and target, averaged to one number.",
        ("loss", "reduction", "scalar-output", "memory-bound"),
        {"ROWS": 1024, "COLUMNS": 2000},
    ),
    Entry(
        "TripletMargin",
        "Triplet margin loss",
        2,
        "Hinge on the difference of two Euclidean distances, for each row.",
        ("loss", "reduction", "memory-bound"),
        {"ROWS": 2048, "WIDTH": 384},
    ),
    Entry(
        "MeanVariance",
        "Row mean and variance",
        1,
        "Mean and unbiased variance of each row, as a tuple.",
        ("reduction", "tuple-output", "memory-bound"),
        {"ROWS": 1024, "COLUMNS": 2000},
    ),
    Entry(
        "RowRange",
        "Row range and scaling",
        2,
        "Least and greatest value of each row and the row scaled to between 0 and 1, as a dict.",
        ("reduction", "dict-output", "memory-bound"),
        {"ROWS": 1024, "COLUMNS": 2000},
    ),
    Entry(
        "InplaceMomentum",
        "Momentum update in place",
        1,
        "Decay of a momentum, a gradient added, clamped; the first input is overwritten and returned.",
        ("elementwise", "in-place", "memory-bound"),
        {"ROWS": 1024, "COLUMNS": 3000},
    ),
    Entry(
        "Bucketize",
        "Bucket numbers",
        1,
        "Number of sorted boundaries at or below each value.",
        ("search", "integer-output", "memory-bound"),
        {"ROWS": 256, "COLUMNS": 1000, "BOUNDARIES": 100},
    ),
    Entry(
        "RowHistogram",
        "Row histograms",
        1,
        "How often each bin number occurs in each row.",
        ("scatter", "integer-input", "integer-output", "memory-bound"),
        {"ROWS": 400, "COLUMNS": 4000},
    ),
    Entry(
        "BandMask",
        "Band mask",
        1,
        "Whether each value lies between two bounds of its column, as booleans.",
        ("elementwise", "boolean-output", "weights", "memory-bound"),
        {"ROWS": 1024, "COLUMNS": 3000},
    ),
    Entry(
        "TransposeScale",
        "Transpose and scale",
        2,
        "Transposed matrices in contiguous memory, each row scaled.",
        ("layout", "weights", "memory-bound"),
        {"BATCH": 4, "ROWS": 500, "COLUMNS": 640},
    ),
    Entry(
        "MatmulBiasGelu",
        "Linear layer and GELU",
        2,
        "Linear layer with bias, then GELU in its tanh form.",
        ("matmul", "activation", "weights", "fusion", "compute-bound"),
        {"ROWS": 512, "INPUT": 384, "OUTPUT": 512},
    ),
    Entry(
        "LinearReluBf16",
        "Linear layer and squared ReLU, bfloat16",
        2,
        "Linear layer with bias in bfloat16, then squared ReLU.",
        ("matmul", "activation", "weights", "fusion", "bfloat16", "compute-bound"),
        {"ROWS": 512, "INPUT": 768, "OUTPUT": 768},
    ),
    Entry(
        "ResidualRmsNormFp16",
        "Residual sum and RMS normalisation, float16",
        2,
        "Residual sum, then root mean square normalisation in float16; both are returned.",
        ("norm", "reduction", "weights", "fusion", "float16", "tuple-output", "memory-bound"),
        {"ROWS": 512, "WIDTH": 1024},
    ),
    Entry(
        "Conv2dReluScale",
        "2D convolution, ReLU and scale",
        2,
        "3x3 convolution of images, then ReLU, then a scale and a shift per channel.",
        ("convolution", "activation", "weights", "fusion", "compute-bound"),
        {"BATCH": 6, "INPUT": 16, "OUTPUT": 32, "SIDE": 56},
    ),
    Entry(
        "LinearResidualLayerNorm",
        "Linear layer, residual and layer normalisation",
        2,
        "Linear layer with bias, a residual added, then layer normalisation.",
        ("matmul", "norm", "weights", "fusion", "compute-bound"),
        {"ROWS": 512, "INPUT": 768, "WIDTH": 384},
    ),
    Entry(
        "SwiGluMlp",
        "Gated feed-forward layer",
        2,
        "Two projections, a SiLU gate and a projection back.",
        ("matmul", "activation", "weights", "fusion", "compute-bound"),
        {"ROWS": 256, "WIDTH": 256, "HIDDEN": 640},
    ),
    Entry(
        "RotaryEmbedding",
        "Rotary position embedding",
        2,
        "Pairs of each head turned by an angle that grows with the position.",
        ("elementwise", "layout", "fusion", "memory-bound"),
        {"BATCH": 2, "HEADS": 8, "LENGTH": 1000, "WIDTH": 64},
    ),
    Entry(
        "CausalAttention",
        "Causal attention",
        2,
        "Attention over what is before each position, written out.",
        ("attention", "matmul", "softmax", "mask", "fusion"),
        {"BATCH": 2, "HEADS": 4, "LENGTH": 256, "WIDTH": 64},
    ),
    Entry(
        "LinearRecurrence",
        "Gated linear recurrence",
        2,
        "A state that decays by a gate and takes an input at each step; every state is returned.",
        ("scan", "weights", "fusion", "memory-bound"),
        {"BATCH": 4, "LENGTH": 64, "WIDTH": 1000},
    ),
    Entry(
        "TransformerBlock",
        "Transformer block",
        3,
        "Causal self-attention and a GELU feed-forward layer, with norms before and residuals around both.",
        ("block", "attention", "matmul", "norm", "weights"),
        {"BATCH": 2, "LENGTH": 128, "WIDTH": 128, "HEADS": 4},
    ),
    Entry(
        "MlpMixerBlock",
        "MLP-Mixer block",
        3,
        "Feed-forward layers across patches and across channels, with norms before and residuals around both.",
        ("block", "matmul", "norm", "weights"),
        {"BATCH": 4, "PATCHES": 100, "CHANNELS": 128, "PATCH_HIDDEN": 128, "CHANNEL_HIDDEN": 384},
    ),
)
