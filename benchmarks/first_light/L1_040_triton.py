"""L1/40 LayerNorm over 64 x 256 x 256 (16 rows of 4194304) in Triton: three kernels.

16 rows cannot fill the GPU, so each row is cut into chunks of 8192. The first kernel writes every chunk's mean and
sum of squared deviations (two-pass, in registers), the second joins the chunks of a row (Chan's formula) into mean
and 1 / sqrt(var + eps), the third normalizes: each program keeps its part of weight and bias and walks over
the rows.
"""

import torch
import triton
import triton.language as tl
from torch import nn

CHUNK = 8192
COLUMNS = 1024


@triton.jit
def chunk_stats_kernel(x_ptr, means_ptr, deviations_ptr, n, n_chunks, CHUNK: tl.constexpr):
    chunk = tl.program_id(0)
    row = tl.program_id(1)
    columns = chunk * CHUNK + tl.arange(0, CHUNK)
    mask = columns < n
    x = tl.load(x_ptr + row.to(tl.int64) * n + columns, mask=mask, other=0.0)
    count = tl.minimum(n - chunk * CHUNK, CHUNK).to(tl.float32)
    mean = tl.sum(x, axis=0) / count
    centered = tl.where(mask, x - mean, 0.0)
    tl.store(means_ptr + row * n_chunks + chunk, mean)
    tl.store(deviations_ptr + row * n_chunks + chunk, tl.sum(centered * centered, axis=0))


@triton.jit
def row_stats_kernel(
    means_ptr, deviations_ptr, mean_ptr, rstd_ptr, n, n_chunks, eps, CHUNK: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    chunks = tl.arange(0, BLOCK)
    mask = chunks < n_chunks
    means = tl.load(means_ptr + row * n_chunks + chunks, mask=mask, other=0.0)
    deviations = tl.load(deviations_ptr + row * n_chunks + chunks, mask=mask, other=0.0)
    counts = tl.where(mask, tl.minimum(n - chunks * CHUNK, CHUNK), 0).to(tl.float32)
    mean = tl.sum(means * (counts / n), axis=0)
    offsets = means - mean
    variance = tl.sum(deviations + counts * offsets * offsets, axis=0) / n
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, 1.0 / tl.sqrt(variance + eps))


@triton.jit
def normalize_kernel(x_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, y_ptr, n_rows, n, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    mask = columns < n
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + columns, mask=mask, other=0.0)
    offsets = columns.to(tl.int64)
    for row in range(n_rows):
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        mean = tl.load(mean_ptr + row)
        rstd = tl.load(rstd_ptr + row)
        tl.store(y_ptr + offsets, (x - mean) * rstd * weight + bias, mask=mask)
        offsets += n


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_contiguous():
            raise ValueError("The input must be contiguous.")
        n = self.ln.weight.numel()
        n_rows = x.numel() // n
        n_chunks = triton.cdiv(n, CHUNK)
        means = torch.empty((2, n_rows, n_chunks), device=x.device, dtype=torch.float32)
        stats = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
        y = torch.empty_like(x)
        chunk_stats_kernel[(n_chunks, n_rows)](x, means[0], means[1], n, n_chunks, CHUNK=CHUNK, num_warps=8)
        row_stats_kernel[(n_rows,)](
            means[0],
            means[1],
            stats[0],
            stats[1],
            n,
            n_chunks,
            self.ln.eps,
            CHUNK=CHUNK,
            BLOCK=triton.next_power_of_2(n_chunks),
            num_warps=4,
        )
        normalize_kernel[(triton.cdiv(n, COLUMNS),)](
            x, self.ln.weight, self.ln.bias, stats[0], stats[1], y, n_rows, n, COLUMNS=COLUMNS, num_warps=8
        )
        return y
