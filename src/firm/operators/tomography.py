"""The geometry of a tomograph: where source and detector stand, and the lengths of rays within pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from firm._util.checks import require

AT_ONCE = 2**21  # places along rays that are looked at together: about 200 MB


@dataclass(frozen=True, eq=False)
class Geometry:
    """Rays through an image, parallel or from a source that turns around it; all lengths in one unit, such as mm.

    The axis of rotation passes through the center of the image, x to its right and y upwards. At the angle 0 parallel
    rays run upwards; the detector's bins lie along x and turn counterclockwise with the rays. A source stands `source`
    before the axis, its detector `detector` behind it. These are the conventions of the ASTRA toolbox.

    Attributes
    ----------
    angles
        Of the views, in radians, (V,).
    image_size
        (H, W) of the images.
    pixel
        Side of a pixel.
    bins, spacing
        How many bins the detector has, and their distance from each other: along an arc on a curved detector.
    source, detector
        Distances of the source and of the detector from the axis; without a source the rays are parallel.
    offset
        How far the detector's center lies along the detector from the ray through the axis: where a tomograph is not
        adjusted exactly ("center of rotation").
    curved
        Whether the detector is an arc around the source. It is flat otherwise.
    """

    angles: Tensor
    image_size: tuple[int, int]
    pixel: float
    bins: int
    spacing: float
    source: float | None = None
    detector: float = 0.0
    offset: float = 0.0
    curved: bool = False

    def __post_init__(self) -> None:
        angles, size = self.angles, self.image_size
        finite = angles.ndim == 1 and len(angles) and angles.isfinite().all()
        require(finite, f"Radon: angles must be finite numbers in radians, (views,), got shape {tuple(angles.shape)}")
        require(len(size) == 2 and min(size) >= 1, f"Radon: image_size must be (H, W), got {size}")
        lengths = math.isfinite(self.pixel * self.spacing * self.offset) and self.pixel > 0 and self.spacing > 0
        require(
            lengths and self.bins >= 1,
            f"Radon: needs at least one bin, and finite pixel > 0 and spacing > 0, got {self.bins} bins, "
            f"{self.pixel} and {self.spacing}",
        )
        if self.source is None:
            require(not self.curved, "Radon: a curved detector needs a source, its distance from the axis")
            return
        radius = self.pixel * math.hypot(*size) / 2
        require(
            self.source > radius and self.detector >= 0 and math.isfinite(self.source + self.detector),
            f"Radon: the source, {self.source:g} from the axis, must lie outside the image, whose corners are "
            f"{radius:.4g} away, and the detector, {self.detector:g}, on the other side",
        )

    @property
    def positions(self) -> Tensor:
        """Where the bins lie along the detector, (bins,)."""
        steps = torch.arange(self.bins, dtype=torch.float64, device=self.angles.device)
        return (steps - (self.bins - 1) / 2) * self.spacing + self.offset

    def rays(self, angles: Tensor) -> tuple[Tensor, Tensor]:
        """Return a point of every ray and its direction, of length 1: (views, bins, 2) each, as (x, y)."""
        angles, s = angles.double()[:, None], self.positions
        along = torch.stack([angles.cos(), angles.sin()], dim=-1)  # the detector
        across = torch.stack([-angles.sin(), angles.cos()], dim=-1)  # from the source to the detector
        if self.source is None:
            return s[:, None] * along, across.expand(-1, self.bins, -1)
        reach = self.source + self.detector
        fan = s / reach if self.curved else (s / reach).atan()
        direction = fan.sin()[:, None] * along + fan.cos()[:, None] * across
        return (-self.source * across).expand(-1, self.bins, -1), direction

    def project(self, angles: Tensor) -> tuple[Tensor, Tensor]:
        """Return in which bin the ray through every pixel ends, counted from 0, and how far the pixel is magnified.

        The magnification is (source + detector) / distance, with the distance from the source along the central ray,
        or for a curved detector along the ray itself; 1 for parallel rays. Both are (views, H, W).
        """
        H, W = self.image_size
        rows, columns = (torch.arange(n, dtype=torch.float64, device=angles.device) for n in (H, W))
        x, y = self.pixel * (columns - (W - 1) / 2), self.pixel * ((H - 1) / 2 - rows)[:, None]
        cos, sin = angles.double().cos()[:, None, None], angles.double().sin()[:, None, None]
        along, across = x * cos + y * sin, y * cos - x * sin
        if self.source is None:
            s, magnified = along, torch.ones_like(along)
        else:
            reach, depth = self.source + self.detector, self.source + across
            if self.curved:
                s, magnified = reach * torch.atan2(along, depth), reach / torch.hypot(along, depth)
            else:
                s, magnified = reach * along / depth, reach / depth
        return (s - self.offset) / self.spacing + (self.bins - 1) / 2, magnified


def ray_lengths(geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Return the matrix of line integrals as (row starts, columns, values) of the compressed sparse rows format.

    Joseph's method: a ray that runs rather upwards crosses every row of pixels once, at the length pixel / cos of its
    slope, and there the image is interpolated linearly between two pixels; others cross every column.
    """
    H, W = geometry.image_size
    views = max(1, AT_ONCE // (geometry.bins * max(H, W)))
    counts, columns, values = [], [], []
    for angles in geometry.angles.split(views):
        for count, column, value in _crossings(geometry, angles):
            counts.append(count)
            columns.append(column)
            values.append(value)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64, device=counts[0].device), torch.cat(counts).cumsum(0)])
    entries = int(starts[-1])
    require(entries < 2**31, f"Radon: {entries:.1e} lengths of rays in pixels: take fewer views at once, or pixels")
    return starts.int(), torch.cat(columns), torch.cat(values)


def _crossings(geometry: Geometry, angles: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The entries of all rays of some views: how many each ray has, their columns and their values."""
    H, W = geometry.image_size
    point, direction = (v.flatten(0, 1) / geometry.pixel for v in geometry.rays(angles))
    direction = direction * geometry.pixel  # of length 1 again, and the points in pixels
    steep = direction[:, 1].abs() >= direction[:, 0].abs()  # crosses rows
    # In pixels from the corner: i counts rows downwards, j columns.
    j, i = point[:, 0] + (W - 1) / 2, (H - 1) / 2 - point[:, 1]
    dj, di = direction[:, 0], -direction[:, 1]
    main, cross = torch.where(steep, i, j)[:, None], torch.where(steep, j, i)[:, None]
    dmain, dcross = torch.where(steep, di, dj)[:, None], torch.where(steep, dj, di)[:, None]
    longest = torch.where(steep, H, W)[:, None]
    widest = torch.where(steep, W, H)[:, None]
    step = torch.arange(max(H, W), device=angles.device)
    place = cross + (step - main) * (dcross / dmain)
    first = place.floor()
    share = place - first
    first = first.long()
    length = geometry.pixel / dmain.abs()
    weight = torch.stack([(1 - share) * length, share * length], dim=-1)
    across = torch.stack([first, first + 1], dim=-1)
    inside = (across >= 0) & (across < widest[..., None]) & (step < longest)[..., None] & (weight > 0)
    column = torch.where(steep[:, None, None], step[:, None] * W + across, across * W + step[:, None])
    yield inside.sum((1, 2)), column[inside].int(), weight[inside].float()
