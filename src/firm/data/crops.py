"""Random crops on the device, from another picture for each sample.

All are fit for a CUDA graph: nothing waits for the device, and no position is known to Python.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from firm._util.checks import require


def positions(u: Tensor, side: int, size: int) -> Tensor:
    """Turn uniform numbers in [0, 1], (B,), into first rows or columns (B,) of crops of `size` within `side` pixels."""
    _require_room(side, size)
    return (u * (side - size + 1)).long().clamp(max=side - size)


def crop_at(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """Cut squares of `size` pixels out of images, one of each.

    Parameters
    ----------
    images
        (B, C, H, W) of any type.
    top, left
        First rows and columns (B,), whole numbers. Squares that leave the image are an IndexError (on a GPU, a failed
        assertion).

    Returns
    -------
    Tensor
        The squares (B, C, size, size).
    """
    return gather_crops(images, torch.arange(len(images), device=images.device), top, left, size)


def gather_crops(data: Tensor, index: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """Cut squares of `size` pixels out of some images of a set, of which only the squares are copied.

    Parameters
    ----------
    data
        The set, (n, C, H, W).
    index, top, left
        (B,): which image, and the first row and column in it, as for `crop_at`.

    Returns
    -------
    Tensor
        The squares (B, C, size, size).
    """
    C, H, W = data.shape[1:]
    _require_room(min(H, W), size)
    steps = torch.arange(size, device=data.device)
    channels = torch.arange(C, device=data.device)[:, None, None]
    rows, columns = _inside(top, H)[:, None] + steps, _inside(left, W)[:, None] + steps
    return data[index[:, None, None, None], channels, rows[:, None, :, None], columns[:, None, None, :]]


def crop_scaled(images: Tensor, top: Tensor, left: Tensor, side: Tensor, size: int) -> Tensor:
    """Cut squares of `side` pixels out of float images and resample them to `size` pixels, bicubic.

    Whole positions with ``side == size`` give the very pixels. Where the square leaves the image, its edge is repeated.
    There is no antialiasing: keep `side` below about 1.5 `size`.

    Parameters
    ----------
    images
        (B, C, H, W), floats.
    top, left, side
        First rows, first columns and sides (B,) of the squares, which may be fractions.

    Returns
    -------
    Tensor
        The resampled squares (B, C, size, size).
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
    """Move negative positions beyond the end: indexing would count them from there."""
    return torch.where(first < 0, n, first)


def _require_room(side: int, size: int) -> None:
    require(1 <= size <= side, f"crops of {size} pixels do not fit into images of {side}")
