"""Random crops on the device, from one picture or another for each sample.

All are fit for a CUDA graph: nothing waits for the device, and no position is known to Python.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import grid_sample


def positions(u: Tensor, side: int, size: int) -> Tensor:
    """Uniform numbers in [0, 1] (B,) to first rows or columns (B,) of crops of `size` within `side` pixels."""
    _require_room(side, size)
    return (u * (side - size + 1)).long().clamp(max=side - size)


def crop_at(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """Cut squares of `size` pixels out of images (B, C, H, W) of any type; top, left (B,), whole numbers.

    Returns (B, C, size, size). Squares that leave the image are an IndexError (on a GPU, a failed assertion).
    """
    return gather_crops(images, torch.arange(len(images), device=images.device), top, left, size)


def gather_crops(data: Tensor, index: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """The same from a whole set: data (n, C, H, W), index, top, left (B,); only the crops are copied."""
    C, H, W = data.shape[1:]
    _require_room(min(H, W), size)
    steps = torch.arange(size, device=data.device)
    channels = torch.arange(C, device=data.device)[:, None, None]
    rows, columns = _inside(top, H)[:, None] + steps, _inside(left, W)[:, None] + steps
    return data[index[:, None, None, None], channels, rows[:, None, :, None], columns[:, None, None, :]]


def crop_scaled(images: Tensor, top: Tensor, left: Tensor, side: Tensor, size: int) -> Tensor:
    """Cut squares of `side` pixels out of float images (B, C, H, W) and resample them to `size` pixels, bicubic.

    top, left and side (B,) may be fractions. Whole positions with ``side == size`` give the very pixels. Where the
    square leaves the image, its edge is repeated. There is no antialiasing: keep `side` below about 1.5 `size`.

    Returns (B, C, size, size).
    """
    H, W = images.shape[2:]
    centers = torch.arange(size, device=images.device, dtype=images.dtype) + 0.5
    place = centers * (side.to(images.dtype) / size)[:, None]  # (B, size): within the square
    y, x = (2 * (first.to(images.dtype)[:, None] + place) / n - 1 for first, n in ((top, H), (left, W)))
    grid = torch.stack([x[:, None, :].expand(-1, size, -1), y[:, :, None].expand(-1, -1, size)], dim=-1)
    resampled = grid_sample(images, grid, mode="bicubic", padding_mode="border", align_corners=False)
    if size > min(H, W):
        return resampled
    first_row, first_column = top.long().clamp(0, H - size), left.long().clamp(0, W - size)
    same = (side == size) & (top == first_row) & (left == first_column)  # else off by rounding
    return torch.where(same[:, None, None, None], crop_at(images, first_row, first_column, size), resampled)


def _inside(first: Tensor, n: int) -> Tensor:
    """Negative positions to ones beyond the end: indexing would count them from there."""
    return torch.where(first < 0, n, first)


def _require_room(side: int, size: int) -> None:
    if not 1 <= size <= side:
        raise ValueError(f"crops of {size} pixels do not fit into images of {side}")
