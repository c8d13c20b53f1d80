"""Masks and kernels. Whatever is random takes a generator."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from firm._util.checks import require

CENTER = 0.08  # share of k-space columns around zero frequency that Cartesian masks always keep


def gaussian_kernel(size: int, sigma: float) -> Tensor:
    """Make a Gaussian kernel (size, size), entries exp(-(i^2 + j^2) / 2 sigma^2), summing to 1; the paper's is 61 wide.

    Parameters
    ----------
    size
        Its sides, in pixels.
    sigma
        Standard deviation, in pixels.
    """
    valid = size >= 1 and sigma > 0
    require(valid, f"gaussian_kernel: size must be at least 1 and sigma positive, got {size} and {sigma}")
    offsets = torch.arange(size, dtype=torch.float64) - size // 2
    row = torch.exp(-offsets.square() / (2 * sigma**2))
    return (torch.outer(row, row) / row.sum() ** 2).float()


def motion_kernel(size: int, length: float, angle: float) -> Tensor:
    """Make the kernel (size, size) of a straight motion, `length` pixels long, `angle` degrees counter-clockwise.

    As in MATLAB's fspecial("motion"), a pixel weighs 1 minus its distance to a segment of ``length - 1`` through the
    center, if positive; the weights sum to 1. A horizontal streak of an odd length is the mean of so many pixels.
    """
    half, turn = (length - 1) / 2, math.radians(angle)
    reach = half * max(abs(math.cos(turn)), abs(math.sin(turn)))
    require(
        size >= 1 and length >= 1 and reach <= (size - 1) // 2 + 1e-6,
        f"motion_kernel: length must be at least 1 and the streak fit into the kernel, got length {length} at "
        f"{angle} degrees in {size}x{size}",
    )
    return motion_kernels(size, torch.tensor([float(length)]), torch.tensor([float(angle)]))[0, 0]


def motion_kernels(size: int, length: Tensor, angle: Tensor) -> Tensor:
    """Make one `motion_kernel` per sample, (B, 1, size, size), of lengths (B,) and angles (B,), on their device.

    Values are not looked at: what does not fit is cut off, and a length below 1 counts as 1.
    """
    require(
        size >= 1 and length.ndim == 1 and length.shape == angle.shape,
        "motion_kernels: size must be at least 1, and length and angle have one value per sample, (B,); got "
        f"{size}, {tuple(length.shape)} and {tuple(angle.shape)}",
    )
    half, turn = (length.reshape(-1, 1, 1, 1) - 1).clamp(min=0) / 2, angle.deg2rad().reshape(-1, 1, 1, 1)
    offsets = torch.arange(size, device=length.device) - size // 2
    up, right = -offsets[:, None], offsets
    along = right * turn.cos() + up * turn.sin()
    across = up * turn.cos() - right * turn.sin()
    beyond = (along.abs() - half).clamp(min=0)  # the ends of the segment
    weights = (1 - torch.hypot(beyond, across)).clamp(min=0)
    return weights / weights.sum((-2, -1), keepdim=True)


def resize_kernel(factor: int, filter: str = "bicubic") -> Tensor:
    """The kernel with which ``PIL.Image.resize`` shrinks by a whole `factor`: "bicubic" (a = -0.5), "bilinear", "box".

    The filter is stretched by `factor`, sampled around the middle of the pixels 0 .. factor - 1 (between two pixels
    where the factor is even) and normalized. Zeros at one side put that middle where `Blur` followed by `Subsample`
    needs it: ``Downsample(factor, filter)`` is their composition with this kernel.
    """
    require(filter in _FILTERS, f"resize_kernel: filter must be one of {', '.join(_FILTERS)}, got {filter!r}")
    whole = int(factor) == factor and factor >= 1
    require(whole, f"resize_kernel: factor must be a whole number >= 1, got {factor}")
    support, function = _FILTERS[filter]
    middle = (factor - 1) / 2
    last = math.ceil(middle + support * factor) - 1  # the furthest pixel strictly inside the support
    offsets = last - torch.arange(max(2 * last, 1), dtype=torch.float64)  # Blur weighs pixel i + offset by its entry
    row = function((offsets - middle).abs() / factor)
    return torch.outer(row / row.sum(), row / row.sum()).float()


def _bicubic(t: Tensor) -> Tensor:
    near, far = 1.5 * t**3 - 2.5 * t**2 + 1, -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2  # a = -0.5
    return torch.where(t < 1, near, torch.where(t < 2, far, 0))


_FILTERS = {  # half of the support, and the filter at a distance t >= 0
    "bicubic": (2.0, _bicubic),
    "bilinear": (1.0, lambda t: (1 - t).clamp(min=0)),
    "box": (0.5, lambda t: (t < 0.5).double()),
}


def random_mask(shape: tuple[int, ...], keep: float, generator: Generator | None = None) -> Tensor:
    """Draw a binary mask in which each pixel is seen with probability `keep`.

    Parameters
    ----------
    shape
        Of the mask: (H, W) for all images, or (B, 1, H, W) for one per sample.
    keep
        The share of pixels that are seen, in (0, 1]; the paper's random inpainting sees 0.3.
    generator
        Source of the random numbers; None is torch's global one.
    """
    require(0 < keep <= 1, f"random_mask: keep is the share of pixels seen, in (0, 1], got {keep}")
    return (torch.rand(shape, generator=generator) < keep).float()


def box_mask(shape: tuple[int, ...], side: int | tuple[int, int]) -> Tensor:
    """Make a mask (..., H, W) of ones with a centered hole of zeros.

    Parameters
    ----------
    shape
        Of the mask; its last two entries are H and W.
    side
        Of the hole in pixels: one number for a square, or its height and width.
    """
    height, width = (side, side) if isinstance(side, int) else side
    H, W = shape[-2:]
    inside = 0 < height < H and 0 < width < W
    require(inside, f"box_mask: a hole of {height}x{width} pixels must lie inside the image, {H}x{W}")
    mask = torch.ones(shape)
    top, left = (H - height) // 2, (W - width) // 2
    mask[..., top : top + height, left : left + width] = 0
    return mask


def stroke_mask(shape: tuple[int, int], strokes: int, width: float, generator: Generator | None = None) -> Tensor:
    """Draw a mask (H, W) of ones with straight strokes missing, between random points: scratches, text.

    Parameters
    ----------
    shape
        H and W.
    strokes, width
        How many there are, and how many pixels wide each is.
    generator
        Source of the random numbers; None is torch's global one.
    """
    valid = strokes >= 1 and width > 0
    require(valid, f"stroke_mask: need at least one stroke and a positive width, got {strokes} and {width}")
    return draw_strokes(torch.rand(1, strokes, 2, 2, generator=generator), torch.tensor([width]), shape)[0, 0]


def draw_strokes(ends: Tensor, width: Tensor, shape: tuple[int, int]) -> Tensor:
    """Make masks (B, 1, H, W): 0 within half of `width` (B,) pixels of a segment, 1 elsewhere.

    `ends` (B, strokes, 2, 2) holds the ends of each segment as (row, column), in [0, 1] of the image.
    """
    H, W = shape
    # Scaled by numbers, not by a tensor made from them: a CUDA graph cannot copy from the CPU.
    a, b = torch.stack([ends[..., 0] * H, ends[..., 1] * W], dim=-1).unbind(2)  # (B, strokes, 2)
    rows, columns = torch.arange(H, device=ends.device) + 0.5, torch.arange(W, device=ends.device) + 0.5
    dr, dc = rows[:, None] - a[..., :1, None], columns - a[..., 1:, None]  # (B, strokes, H, 1) and (1, W)
    along = (b - a)[..., None, None, :]
    length = along.square().sum(-1).clamp(min=1e-6)
    nearest = ((dr * along[..., 0] + dc * along[..., 1]) / length).clamp(0, 1)  # (B, strokes, H, W)
    distance = (dr - nearest * along[..., 0]).square() + (dc - nearest * along[..., 1]).square()
    inside = distance < (width / 2).square().reshape(-1, 1, 1, 1)
    return (~inside.any(1, keepdim=True)).float()


def cartesian_mask(
    shape: tuple[int, int], lines: int, generator: Generator | None = None, center: float = CENTER
) -> Tensor:
    """Draw a conjugate-symmetric k-space mask (H, W) that keeps `lines` of the W columns.

    Columns are in the order of ``torch.fft.fft2``. The lowest frequencies, a share `center` of all columns, are always
    kept; the others are pairs (k, -k) drawn at random. An even number of lines takes the Nyquist column along, which
    needs an even W. The paper keeps 56 of 256 lines and does not say which.
    """
    H, W = shape
    require(1 <= lines <= W, f"cartesian_mask: lines must be between 1 and the width {W}, got {lines}")
    paired = lines % 2 == 1 or W % 2 == 0
    require(paired, f"cartesian_mask: with an odd width ({W}), a symmetric mask needs an odd number of lines")
    require(0 <= center <= 1, f"cartesian_mask: center is a share of the columns, in [0, 1], got {center}")
    pairs = (lines - 1) // 2
    low = min(pairs, int(center * W) // 2)  # pairs next to zero frequency
    candidates = torch.arange(low + 1, (W + 1) // 2)
    drawn = candidates[torch.randperm(len(candidates), generator=generator)[: pairs - low]]
    k = torch.cat([torch.arange(1, low + 1), drawn])
    columns = torch.zeros(W)
    columns[0] = 1
    columns[k], columns[-k] = 1, 1
    if lines % 2 == 0:
        columns[W // 2] = 1
    return columns.expand(H, W).clone()
