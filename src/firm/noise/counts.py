"""The noise of counts, as a camera of a microscope makes them, estimated from what it counted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from firm._util.checks import require

SIDE, FEWEST = 8, 12  # pixels of a square; squares of a bin of brightness
BINS, CALM = 16, 0.4  # of brightness, equally wide; the share of the squares of a bin that is smoothest
BRIGHTEST = 0.995  # quantile of the squares' brightness where the bins end
ROUNDS = 10  # of weights by the line itself
STRUCTURE = ((1.0, -2.0, 1.0), (-2.0, 4.0, -2.0), (1.0, -2.0, 1.0))  # blind to planes and to what curves along an axis


@dataclass(frozen=True)
class Counts:
    """The noise of counts c = gain k + offset + read n, with photons k and a standard normal n: all in counts."""

    gain: float
    read: float
    offset: float

    def __str__(self) -> str:
        """Say it in a sentence."""
        return f"a photon adds {self.gain:.3g} counts, read noise {self.read:.3g}, offset {self.offset:.4g}"


def fit_counts(counts: Tensor, full: float = math.inf, offset: float | None = None) -> Counts:
    """Estimate gain, read noise and offset from counts (n, H, W), as they are: a line, variance by brightness.

    The variance of counts grows along gain (c - offset) + read^2. Squares of 8x8 pixels are sorted by their brightness.
    In each bin those count whose brightness is smoothest on a scale of two pixels, which noise hardly tells; their
    variance is the mean square of a second difference across both axes (Immerkaer, 1996), unbiased for any noise that
    is independent in the pixels, few photons too. On simulated cells with 8 to 1000 photons gain and read noise are
    right within 15 %, or 25 % from a single plane of 192x192 with 8 photons (tests/noise/test_counts.py).

    The line alone does not tell offset from read noise: the offset is the level of the darkest squares, which is right
    where something is dark, and the read noise is the noise there.

    Parameters
    ----------
    counts
        Planes of one channel.
    full
        The count at which the sensor is full; squares that have it do not count.
    offset
        The counts of no light, where that is known.

    Returns
    -------
    The estimate. ValueError where there is too little to look at, or where noise does not grow with the brightness.
    """
    c = counts.double()[:, None]
    h, w = (n // SIDE * SIDE for n in c.shape[-2:])
    require(min(h, w) >= SIDE, f"planes of {c.shape[-1]}x{c.shape[-2]} pixels are too small to tell the noise from")
    second = torch.tensor(STRUCTURE, dtype=c.dtype)[None, None] / 6
    square = F.pad(F.conv2d(c, second).square(), (1, 1, 1, 1), mode="replicate")
    level, variance = (F.avg_pool2d(v[..., :h, :w], SIDE).flatten() for v in (c, square))
    pairs = F.avg_pool2d(c[..., :h, :w], 2)
    rough = (F.avg_pool2d(pairs.square(), SIDE // 2) - F.avg_pool2d(pairs, SIDE // 2).square()).flatten()
    seen = (F.max_pool2d(c[..., :h, :w], SIDE).flatten() < full) & (variance > 0)
    level, variance, rough = level[seen], variance[seen], rough[seen]
    few = "too few pixels, neither black nor full, to tell how the noise grows with the brightness"
    require(len(level) >= 3 * FEWEST, few)
    if offset is None:
        dark = level.argsort()[:FEWEST]
        spread = 5 * float(variance[dark].mean().sqrt()) / SIDE  # of squares that are equally dark, all of them
        offset = float(level[level <= level.min() + spread].median())
    edges = torch.linspace(float(level.min()), float(level.quantile(BRIGHTEST)), BINS + 1, dtype=level.dtype)
    bins = torch.bucketize(level, edges[1:-1])
    points = []
    for b in range(BINS):
        inside = (bins == b).nonzero().flatten()
        if len(inside) >= FEWEST:
            calm = inside[rough[inside].argsort()[: max(FEWEST // 2, int(CALM * len(inside)))]]
            points.append((float(level[calm].mean()) - offset, float(variance[calm].mean()), len(calm)))
    require(len(points) > 1, few)
    light, of_it, n = (torch.tensor(v, dtype=torch.float64) for v in zip(*points, strict=True))
    gain, floor = _line(light, of_it, n)
    require(gain > 0, "the noise does not grow with the brightness: it is not that of photons")
    return Counts(gain, math.sqrt(floor), offset)


def _line(light: Tensor, variance: Tensor, n: Tensor) -> tuple[float, float]:
    """Fit gain and floor, both at least 0, of variance = gain light + floor, each point with the weight n / line^2."""
    gain, floor = float((n * variance).sum() / (n * light).sum().clamp(min=1e-12)), 0.0
    for _ in range(ROUNDS):
        weight = n.sqrt() / (gain * light + floor).clamp(min=1e-3 * float(variance.max()))
        columns = torch.stack([light, torch.ones_like(light)], 1) * weight[:, None]
        gain, floor = torch.linalg.lstsq(columns, (variance * weight)[:, None]).solution[:, 0].tolist()
        if floor < 0:  # all of it comes from photons
            floor = 0.0
            gain = float((weight.square() * light * variance).sum() / (weight * light).square().sum())
        if gain <= 0:
            return 0.0, float(variance.mean())
    return gain, floor
