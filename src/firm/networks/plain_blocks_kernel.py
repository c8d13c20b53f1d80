"""The Triton kernels of `firm.networks.res_unet.Level`, between its convolutions; imported only where Triton is."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

TILE = 4096  # values a program holds at once


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
    rows = max(TILE // width, 1)
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
