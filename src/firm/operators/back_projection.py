"""Filtered back-projection: the classical inverse of tomography from many views, and a first look from few."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.base import shape
from firm.operators.radon import Radon
from firm.operators.tomography import Geometry


def filtered_back_projection(op: Radon | Geometry, y: Tensor, *, smooth: bool = False) -> Tensor:
    """Invert a sinogram y (B, C, views, bins) of parallel or fan-beam views all around: images (B, C, H, W).

    Every view is filtered with the ramp |frequency|, then each pixel sums over the views what the ray through it
    measured, interpolated between bins. Rays of a fan are weighted with the cosine of their angle, and pixels with
    the inverse square of their distance from the source (Kak and Slaney, 1988, Chapter 3). No matrix is needed, so that
    a `Geometry` will do. Views that are missing leave streaks; the result is differentiable in `y`.

    Parameters
    ----------
    op, y
        The operator, or its geometry, and the measurements.
    smooth
        Let the ramp go down to 0 at the highest frequency (Hann), which halves the noise and blurs a little.
    """
    g = op.geometry if isinstance(op, Radon) else op
    measured = (len(g.angles), g.bins)
    require(y.ndim == 4 and tuple(y.shape[-2:]) == measured, f"y has shape {shape(y)}, the views have {measured}")
    filtered = _filtered(g, y, smooth)
    weights = _shares(g.angles, math.pi if g.source is None else 2 * math.pi)
    image = y.new_zeros(*y.shape[:2], *g.image_size)
    for i, angle in enumerate(g.angles):
        place, magnified = (v[0].to(y.device) for v in g.project(angle[None]))
        first = place.floor()
        share = (place - first).to(y.dtype)
        j = first.long()
        left, right = (
            filtered[:, :, i, k.clamp(0, g.bins - 1)] * ((k >= 0) & (k < g.bins)).to(y.dtype) for k in (j, j + 1)
        )
        near = 1.0 if g.source is None else (magnified * (g.source / (g.source + g.detector))).square().to(y.dtype)
        image = image + float(weights[i]) * near * torch.lerp(left, right, share)
    return image


def _filtered(g: Geometry, y: Tensor, smooth: bool) -> Tensor:
    """The views, weighted for a fan, after the ramp filter of Ramachandran and Lakshminarayanan."""
    if g.source is None:
        tau, cosine = g.spacing, torch.ones(g.bins, device=y.device)
    else:
        reach = g.source + g.detector
        fan = g.positions / reach if g.curved else (g.positions / reach).atan()
        tau, cosine = g.spacing * g.source / reach, fan.cos()  # the detector moved to the axis
    n = 2 ** math.ceil(math.log2(2 * g.bins))
    steps = torch.arange(n, dtype=torch.float64, device=g.angles.device)
    steps = torch.minimum(steps, n - steps)
    kernel = torch.where(steps % 2 == 1, -1 / (math.pi * steps.clamp(min=1) * tau).square(), 0.0)
    kernel[0] = 1 / (4 * tau**2)
    if g.curved:
        angle = steps * g.spacing / (g.source + g.detector)  # type: ignore[operator]
        bent = (angle / angle.clamp(max=3).sin()).square().where((angle > 0) & (angle < 3), 1)
        kernel = kernel * bent
    ramp = torch.fft.rfft(kernel).real * tau
    if smooth:
        ramp = ramp * (1 + torch.linspace(0, math.pi, len(ramp), dtype=torch.float64, device=ramp.device).cos()) / 2
    weighted = y * cosine.to(y)
    return torch.fft.irfft(torch.fft.rfft(weighted, n=n) * ramp.to(y), n=n)[..., : g.bins]


def _shares(angles: Tensor, circle: float) -> Tensor:
    """What every view stands for, (views,), in sum pi: half the gaps to its neighbors on the circle of directions.

    Parallel views repeat after half a turn. A gap of more than three times the usual one counts as a usual one: there
    views are missing.
    """
    order = angles.remainder(circle).argsort()
    turned = angles.remainder(circle)[order]
    gaps = torch.cat([turned, turned[:1] + circle]).diff()
    apart = gaps[gaps > circle / 1e5]  # others are views that repeat
    usual = apart.median()
    gaps = torch.where(gaps > 3 * usual, usual, gaps) if len(apart) > 2 else gaps
    shares = torch.zeros_like(turned)
    shares[order] = (gaps + gaps.roll(1)) / 2
    return shares * math.pi / circle
