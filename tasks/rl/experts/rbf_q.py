"""A tile of states by all atoms in each program for kernel and values; then the variance from the stored kernel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

ROWS, PART = 32, 32


@triton.jit
def make_values(
    states, dictionary, scales, alpha, kernel, values, rows,
    WIDTH: tl.constexpr, ATOMS: tl.constexpr, ACTIONS: tl.constexpr,
    ROWS: tl.constexpr, PART: tl.constexpr, LANES: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature, action = tl.arange(0, WIDTH), tl.arange(0, LANES)
    inside, scale = row < rows, tl.load(scales + feature)[None, :]
    x = tl.load(states + row[:, None] * WIDTH + feature[None, :], mask=inside[:, None], other=0.0) / scale
    result = tl.zeros((ROWS, LANES), tl.float32)
    for start in range(0, ATOMS, PART):
        atom = start + tl.arange(0, PART)
        there = atom < ATOMS
        d = tl.load(dictionary + atom[:, None] * WIDTH + feature[None, :], mask=there[:, None], other=0.0) / scale
        product = tl.dot(x, tl.trans(d), input_precision="ieee")
        squares = tl.sum(x * x, 1)[:, None] + tl.sum(d * d, 1)[None, :] - 2.0 * product
        k = tl.where(there[None, :], tl.exp(-0.5 * tl.maximum(squares, 0.0)), 0.0)
        tl.store(kernel + row[:, None] * ATOMS + atom[None, :], k, mask=inside[:, None] & there[None, :])
        weight = tl.load(
            alpha + atom[:, None] * ACTIONS + action[None, :],
            mask=there[:, None] & (action < ACTIONS)[None, :], other=0.0,
        )
        result = tl.dot(k, weight, result, input_precision="ieee")
    shown = inside[:, None] & (action < ACTIONS)[None, :]
    tl.store(values + row[:, None] * ACTIONS + action[None, :], result, mask=shown)


@triton.jit
def make_variance(
    kernel, precision, variance, rows, ATOMS: tl.constexpr, ROWS: tl.constexpr, PART: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    total = tl.zeros((ROWS,), tl.float32)
    for right in range(0, ATOMS, PART):
        j = right + tl.arange(0, PART)
        product = tl.zeros((ROWS, PART), tl.float32)
        for left in range(0, ATOMS, PART):
            i = left + tl.arange(0, PART)
            k = tl.load(kernel + row[:, None] * ATOMS + i[None, :], mask=inside & (i < ATOMS)[None, :], other=0.0)
            p = tl.load(
                precision + i[:, None] * ATOMS + j[None, :],
                mask=(i < ATOMS)[:, None] & (j < ATOMS)[None, :], other=0.0,
            )
            product = tl.dot(k, p, product, input_precision="ieee")
        own = tl.load(kernel + row[:, None] * ATOMS + j[None, :], mask=inside & (j < ATOMS)[None, :], other=0.0)
        total += tl.sum(product * own, 1)
    tl.store(variance + row, tl.maximum(1.0 - total, 0.0), mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, states, dictionary, scales, alpha, precision):
        states, dictionary, alpha = states.contiguous(), dictionary.contiguous(), alpha.contiguous()
        precision = precision.contiguous()
        (rows, width), (atoms, actions) = states.shape, alpha.shape
        grid, sizes = (triton.cdiv(rows, ROWS),), {"ATOMS": atoms, "ROWS": ROWS, "PART": PART}
        kernel = torch.empty((rows, atoms), device=states.device, dtype=states.dtype)
        values = torch.empty((rows, actions), device=states.device, dtype=states.dtype)
        variance = torch.empty(rows, device=states.device, dtype=states.dtype)
        make_values[grid](
            states, dictionary, scales, alpha, kernel, values, rows, WIDTH=width, ACTIONS=actions,
            LANES=max(16, triton.next_power_of_2(actions)), **sizes,
        )
        make_variance[grid](kernel, precision, variance, rows, **sizes)
        return values, variance
