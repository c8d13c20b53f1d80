"""Are the samples a posterior? Spread, calibration, and distance of one-dimensional marginals."""

from __future__ import annotations

import torch
from torch import Tensor

from firm._util.checks import require


def wasserstein(a: Tensor, b: Tensor) -> Tensor:
    """Return the distance W1 between two empirical distributions at each position of the trailing shape.

    The samples are `a` (n, ...) and `b` (m, ...). W1 is the area between their empirical CDFs; exact, also for n != m.
    """
    same = a.shape[1:] == b.shape[1:]
    require(same, f"wasserstein: trailing shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")
    both = torch.cat([a, b]).sort(dim=0)
    from_a = (both.indices < len(a)).to(a.dtype)
    gap = (from_a.cumsum(0) / len(a) - (1 - from_a).cumsum(0) / len(b)).abs()
    return (gap[:-1] * both.values.diff(dim=0)).sum(0)


def pixel_std(samples: Tensor) -> Tensor:
    """Return the standard deviation over samples (S, B, C, H, W) at every pixel, (B, H, W), averaged over channels."""
    _require_samples(samples)
    return samples.var(0).mean(1).sqrt()


def coverage(samples: Tensor, truth: Tensor, level: float = 0.9) -> Tensor:
    """Return the share of pixels of each image whose true value lies in the central interval of the samples, (B,).

    `samples` is (S, B, ...), `truth` (B, ...). For samples of the true posterior the expected share is `level`: S
    samples split the line into S + 1 equally likely gaps, and the interval holds ``level * (S + 1)`` of them, with the
    outermost counted in part, so that few samples are calibrated too.
    """
    _require_samples(samples)
    require(0 < level < 1, f"coverage: level must be between 0 and 1, got {level}")
    require(
        samples.shape[1:] == truth.shape,
        f"coverage: samples of shape {tuple(samples.shape)} and a truth of shape {tuple(truth.shape)}; the samples "
        "(S, B, ...) must have the truth's shape (B, ...) after their number",
    )
    S = len(samples)
    rank = (samples < truth).sum(0) + 0.5 * (samples == truth).sum(0)  # of S + 1 gaps
    distance = (rank - S / 2).abs()  # from the median gap, 0 to S / 2
    half = level * (S + 1) / 2
    inside = (half - distance + 0.5).clamp(0, 1)  # the gap at the edge counts by the part that is inside
    return inside.flatten(1).mean(1)


def _require_samples(samples: Tensor) -> None:
    several = samples.ndim > 1 and len(samples) > 1
    require(several, f"at least two samples (S, B, ...) are needed, got shape {tuple(samples.shape)}")
