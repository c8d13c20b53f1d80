"""The Triton kernel of `firm.networks.norm_swish.fused_norm_swish`; imported only where Triton is."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

TILE = 8192  # values a program holds at once


def launch(x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, out: Tensor, groups: int, eps: float) -> None:
    """Fill `out`. `x` and `out` are (B, C, H, W) in channels_last, `shift` (B, C), `weight` and `bias` (C,)."""
    B, C, H, W = x.shape
    channels = C // groups  # of a group
    width = triton.next_power_of_2(channels)
    rows = min(triton.next_power_of_2(H * W), max(TILE // width, 1))
    # Without a shift the pointer is not read; it must still be one.
    _kernel[(B, groups)](
        x, x if shift is None else shift, weight, bias, out, H * W, C, channels, eps,
        SHIFTED=shift is not None, ROWS=rows, WIDTH=width, num_warps=8,
    )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
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
