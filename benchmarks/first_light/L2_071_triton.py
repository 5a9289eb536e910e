"""L2/71 Conv2d (3 x 3, 8 -> 64 channels) + divide + LeakyReLU in Triton: direct convolution, fused epilogue.

Each program computes 32 output channels of 256 consecutive output pixels of one image as a sum of outer products over
the 72 taps, all in fp32 FMAs; bias, division and LeakyReLU are applied to the accumulators before the only store. A
first, tiny kernel lays the weights out tap by tap, so that the channels of one tap are read with 16-byte loads. The
divisor is a Python number: its reciprocal is multiplied in, as torch does on CUDA.
"""

import torch
import triton
import triton.language as tl
from torch import nn

PIXELS = 256
CHANNELS = 32
NEGATIVE_SLOPE = 0.01


@triton.jit
def transpose_kernel(weight_ptr, taps_ptr, C_OUT: tl.constexpr, TAPS: tl.constexpr):
    tap = tl.program_id(0)
    channels = tl.arange(0, C_OUT)
    tl.store(taps_ptr + tap * C_OUT + channels, tl.load(weight_ptr + channels * TAPS + tap))


@triton.jit
def conv_kernel(
    x_ptr,
    taps_ptr,
    bias_ptr,
    y_ptr,
    height,
    width,
    out_height,
    out_width,
    inverse,
    slope,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    K: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    channels = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    pixels = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    image = tl.program_id(2).to(tl.int64)
    mask = pixels < out_height * out_width
    x_pixels = x_ptr + image * C_IN * height * width + (pixels // out_width) * width + pixels % out_width
    acc = tl.zeros((CHANNELS, PIXELS), dtype=tl.float32)
    for c in range(C_IN):
        for i in tl.static_range(K):
            for j in tl.static_range(K):
                x = tl.load(x_pixels + c * height * width + i * width + j, mask=mask, other=0.0)
                w = tl.load(taps_ptr + ((c * K + i) * K + j) * C_OUT + channels)
                acc += w[:, None] * x[None, :]
    acc = (acc + tl.load(bias_ptr + channels)[:, None]) * inverse
    acc = tl.where(acc > 0, acc, acc * slope)
    y_offsets = (image * C_OUT + channels[:, None]) * (out_height * out_width) + pixels[None, :]
    tl.store(y_ptr + y_offsets, acc, mask=mask[None, :])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, divisor):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.divisor = divisor
        if out_channels != triton.next_power_of_2(out_channels) or out_channels % CHANNELS:
            raise ValueError("The number of output channels must be a power of two of at least 32.")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.conv.weight, self.conv.bias
        if not (x.is_contiguous() and weight.is_contiguous()):
            raise ValueError("Input and weight must be contiguous.")
        c_out, c_in, k, _ = weight.shape
        n, _, height, width = x.shape
        out_height, out_width = height - k + 1, width - k + 1
        taps = torch.empty((c_in * k * k, c_out), device=x.device, dtype=torch.float32)
        y = torch.empty((n, c_out, out_height, out_width), device=x.device, dtype=torch.float32)
        transpose_kernel[(c_in * k * k,)](weight, taps, C_OUT=c_out, TAPS=c_in * k * k, num_warps=1)
        grid = (c_out // CHANNELS, triton.cdiv(out_height * out_width, PIXELS), n)
        conv_kernel[grid](
            x,
            taps,
            bias,
            y,
            height,
            width,
            out_height,
            out_width,
            1.0 / self.divisor,
            NEGATIVE_SLOPE,
            C_IN=c_in,
            C_OUT=c_out,
            K=k,
            CHANNELS=CHANNELS,
            PIXELS=PIXELS,
            num_warps=4,
        )
        return y
