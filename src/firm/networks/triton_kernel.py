"""The Triton kernels that stand between the convolutions when restoring on a GPU; imported only where Triton is.

At batch 1 the number of kernels is the time, so each of these does in one pass what torch does in several.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

NORM_TILE, PIXEL_TILE = 8192, 4096  # values that a program holds at once


def norm_swish(x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
    """``silu(group_norm(x + shift))`` in one kernel, in channels_last; no gradients.

    `x` is (B, C, H, W), `shift` (B, C, 1, 1), `weight` and `bias` (C,).
    """
    x = x.contiguous(memory_format=torch.channels_last)
    out = torch.empty_like(x)
    B, C, H, W = x.shape
    channels = C // groups  # of a group
    width = triton.next_power_of_2(channels)
    rows = min(triton.next_power_of_2(H * W), max(NORM_TILE // width, 1))
    with torch.cuda.device_of(x):  # Triton launches on the current device
        # Without a shift the pointer is not read; it must still be one.
        _norm_swish[(B, groups)](
            x, x if shift is None else shift.flatten(1).contiguous(), weight, bias, out, H * W, C, channels, eps,
            SHIFTED=shift is not None, ROWS=rows, WIDTH=width, num_warps=8,
        )  # fmt: skip
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _norm_swish(  # type: ignore[no-untyped-def]
    x, shift, weight, bias, out, pixels, C, channels, eps,
    SHIFTED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
) -> Any:  # fmt: skip
    """One program a sample and group: sums over its pixels, then the result, `ROWS` pixels at a time."""
    b, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    channel = group * channels + column
    inside = column < channels
    start = b * pixels * C
    add = tl.zeros([1, WIDTH], tl.float32)
    if SHIFTED:
        add += tl.load(shift + b * C + channel, mask=inside, other=0).to(tl.float32)

    total, squares = tl.zeros([ROWS, WIDTH], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(0, pixels, ROWS):
        here = inside & (first + row < pixels)
        value = tl.load(x + start + (first + row) * C + channel, mask=here, other=0).to(tl.float32) + add
        value = tl.where(here, value, 0)
        total += value
        squares += value * value
    count = pixels * channels
    mean = tl.sum(total) / count
    variance = tl.maximum(tl.sum(squares) / count - mean * mean, 0)

    scale = tl.load(weight + channel, mask=inside, other=0).to(tl.float32) / tl.sqrt(variance + eps)
    offset = tl.load(bias + channel, mask=inside, other=0).to(tl.float32) + (add - mean) * scale
    for first in range(0, pixels, ROWS):
        here = inside & (first + row < pixels)
        place = start + (first + row) * C + channel
        value = tl.load(x + place, mask=here, other=0).to(tl.float32) * scale + offset
        tl.store(out + place, (value * tl.sigmoid(value)).to(out.dtype.element_ty), mask=here)


def add_and_normalize(x: Tensor, h: Tensor | None, bias: Tensor | None, out: Tensor, unit: Tensor, tiny: float) -> None:
    """Fill `out` with x + h + bias and `unit` with that over the size of each pixel's features.

    All are (B, C, H, W) in channels_last, `bias` (C,). Without `h` and `bias` only `unit` is filled, from x.
    """
    rows, width, programs = _tiles(x)
    _add_and_normalize[(programs,)](
        x, x if h is None else h, x if bias is None else bias, out, unit, x.numel() // x.shape[1], x.shape[1], tiny,
        ADDED=h is not None, ROWS=rows, WIDTH=width, num_warps=4,
    )  # fmt: skip


def shifted_swish(h: Tensor, bias: Tensor, shift: Tensor) -> None:
    """Swish of h + bias + shift, in its place. `h` is (B, C, H, W) in channels_last, `bias` (C,).

    `shift` is (B, C), and its rows may be those of a larger matrix.
    """
    rows, width, programs = _tiles(h)
    B, C, H, W = h.shape
    _shifted_swish[(programs,)](
        h, bias, shift, shift.stride(0), B * H * W, H * W, C, ROWS=rows, WIDTH=width, num_warps=4
    )


def _tiles(x: Tensor) -> tuple[int, int, int]:
    """Pixels and features that a program holds, and how many programs that makes."""
    pixels, width = x.numel() // x.shape[1], triton.next_power_of_2(x.shape[1])
    rows = max(PIXEL_TILE // width, 1)
    return rows, width, triton.cdiv(pixels, rows)


@triton.jit  # type: ignore[untyped-decorator]
def _add_and_normalize(  # type: ignore[no-untyped-def]
    x, h, bias, out, unit, pixels, C, tiny, ADDED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
) -> Any:  # fmt: skip
    """One program for `ROWS` pixels with all their features."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    here, place = (row < pixels) & (column < C), row * C + column
    value = tl.load(x + place, mask=here, other=0).to(tl.float32)
    if ADDED:
        value += tl.load(h + place, mask=here, other=0).to(tl.float32)
        value += tl.load(bias + column, mask=column < C, other=0).to(tl.float32)
        tl.store(out + place, value.to(out.dtype.element_ty), mask=here)
    value = tl.where(here, value, 0)
    size = tl.sqrt(tl.sum(value * value, axis=1)[:, None] / C + tiny)
    tl.store(unit + place, (value / size).to(unit.dtype.element_ty), mask=here)


@triton.jit  # type: ignore[untyped-decorator]
def _shifted_swish(  # type: ignore[no-untyped-def]
    h, bias, shift, stride, pixels, of_a_sample, C, ROWS: tl.constexpr, WIDTH: tl.constexpr,
) -> Any:  # fmt: skip
    """One program for `ROWS` pixels, which may be of several samples."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    here, place = (row < pixels) & (column < C), row * C + column
    value = tl.load(h + place, mask=here, other=0).to(tl.float32)
    value += tl.load(bias + column, mask=column < C, other=0).to(tl.float32)
    value += tl.load(shift + row // of_a_sample * stride + column, mask=here, other=0).to(tl.float32)
    tl.store(h + place, (value * tl.sigmoid(value)).to(h.dtype.element_ty), mask=here)
