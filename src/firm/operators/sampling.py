"""Where k-space is sampled: lines, spokes and discs, one pattern for each sample of a batch, on any device.

All take uniform numbers and make masks (B, 1, H, W), or (B, 1, 1, W) of whole lines, in the order of
``torch.fft.fft2``. Nothing is read back from the device, so that training may draw them inside a CUDA graph.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

PASSES = 5  # of Poisson discs; later ones find almost no free place
NEAREST = 0.4  # distance of samples in the middle, relative to that at the rim


def uniform_lines(u: Tensor, acceleration: Tensor, center: Tensor, width: int) -> Tensor:
    """Take every R-th line, from a random one on, and all of the `center` lines around zero frequency.

    `u` are uniform numbers (B,), `acceleration` R >= 1 and `center` (B,). R need not be whole: lines lie as evenly as
    they can. The lines in the middle come on top.
    """
    line = torch.arange(width + 1, device=u.device)
    count = (line / acceleration[:, None] + u[:, None]).floor()
    return _columns((count[:, 1:] > count[:, :-1]) | _middle(center, width))


def variable_density_lines(u: Tensor, acceleration: Tensor, center: Tensor, width: int) -> Tensor:
    """Take a share 1 / R of the lines at random, denser in the middle: with weights (1 - |k| / k_max)^2 beyond it.

    `u` are uniform numbers (B, W). The `center` lines around zero frequency (B,) are among them.
    """
    distance = (torch.arange(width, device=u.device) - width // 2).abs() / (width / 2)
    weight = (1.02 - distance).square()
    score = u.clamp(1e-6, 1 - 1e-6).log() / weight  # the largest make a weighted draw without replacement
    score = torch.where(_middle(center, width), 1.0, score)
    return _columns(_largest(score, width / acceleration))


def radial(u: Tensor, acceleration: Tensor, shape: tuple[int, int]) -> Tensor:
    """Take spokes through the middle at equal angles, turned by a random one; about 1 / R of all samples.

    `u` are uniform numbers (B,). A sample is on a spoke if it is less than half a sample away. n spokes cover the
    middle up to the radius n / pi, and beyond it n lines: about 1.12 n N - n^2 / pi of N^2 samples.
    """
    N = math.sqrt(shape[0] * shape[1])
    share = (1 / acceleration).clamp(max=0.9)[:, None, None]
    chord = 4 / math.pi * math.log(1 + math.sqrt(2))  # mean length of a line through the middle of a unit square
    spokes = (math.pi / 2 * N * (chord - (chord**2 - 4 * share / math.pi).clamp(min=0).sqrt())).round().clamp(min=1)
    y, x = (torch.arange(n, device=u.device, dtype=u.dtype) - n // 2 for n in shape)
    turns = torch.atan2(y[:, None], x[None]) / math.pi * spokes + u[:, None, None]
    beside = (turns - turns.round()) / spokes * math.pi
    taken = (torch.hypot(y[:, None], x[None]) * beside.sin()).abs() <= 0.5
    return torch.fft.ifftshift(taken.to(u.dtype), dim=(-2, -1))[:, None]


def poisson_disc(u: Tensor, acceleration: Tensor, center: Tensor) -> Tensor:
    """Take a share 1 / R of the samples, none close to another, denser in the middle: Poisson discs.

    `u` are uniform numbers (B, H, W). In each of a few passes a sample is taken if its number is the largest within its
    disc among those that no disc has covered yet; the discs grow towards the rim. The square of `center` samples (B,)
    around zero frequency is taken whole. What is missing to the share is taken from the uncovered, then from the rest.
    """
    H, W = u.shape[1:]
    y, x = ((torch.arange(n, device=u.device) - n // 2).abs() / (n / 2) for n in (H, W))
    rim = torch.hypot(y[:, None], x[None]).clamp(max=1)
    mean = (NEAREST + (1 - NEAREST) * rim).pow(-2).mean()  # so that the share is about right: jammed discs cover 0.7
    radius = (0.7 * acceleration[:, None, None] * mean).sqrt() * (NEAREST + (1 - NEAREST) * rim)
    reach = 4
    offsets = [(i, j) for i in range(-reach, reach + 1) for j in range(-reach, reach + 1) if i or j]
    taken, free = torch.zeros_like(u), torch.ones_like(u, dtype=torch.bool)
    for k in range(PASSES):
        score = torch.where(free, u, -1)
        best = free
        for i, j in offsets:
            best = best & ((score > score.roll((i, j), (-2, -1))) | (math.hypot(i, j) >= radius))
        covered = best
        for i, j in offsets:
            covered = covered | (best.roll((i, j), (-2, -1)) & (math.hypot(i, j) < radius))
        taken = taken + best * (PASSES - k)
        free = free & ~covered
    square = _middle(center, H)[:, :, None] & _middle(center, W)[:, None]
    rank = torch.where(square, 2.0 * PASSES, taken + free * 0.5 + 0.4 * u).flatten(1)
    chosen = _largest(rank, H * W / acceleration).reshape(u.shape) | square
    return torch.fft.ifftshift(chosen.to(u.dtype), dim=(-2, -1))[:, None]


def _middle(center: Tensor, width: int) -> Tensor:
    """The `center` (B,) lines around zero frequency, centered, (B, width)."""
    position = torch.arange(width, device=center.device) - width // 2
    half = (center[:, None] / 2).floor()
    return (position >= -half) & (position < center[:, None] - half)


def _largest(score: Tensor, count: Tensor) -> Tensor:
    """Mark the `count` (B,) largest of each row of `score` (B, n)."""
    order = score.argsort(1, descending=True)
    ranks = torch.arange(score.shape[1], device=score.device).expand_as(order)
    return torch.zeros_like(order).scatter(1, order, ranks) < count.round()[:, None]


def _columns(taken: Tensor) -> Tensor:
    """Centered lines (B, W) as a mask (B, 1, 1, W) in the order of the transform."""
    return torch.fft.ifftshift(taken.float(), dim=-1)[:, None, None]
