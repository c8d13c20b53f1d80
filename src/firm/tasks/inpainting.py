"""Inpainting: single pixels, a hole or strokes are missing; and what all tasks share that draw masks at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from firm._util.checks import generator_for
from firm.operators import LinearOperator, Mask, box_mask, random_mask, stroke_mask
from firm.operators.patterns import draw_strokes
from firm.tasks.base import BaseTask, Rows
from firm.tasks.parameter import Parameter

PROTOCOL_SEED = 42  # of the mask that all images share

MASK = Parameter(
    str, "shared: all images have the mask that the protocol draws with seed 42; fresh: each image has its own",
    "shared", choices=("shared", "fresh"), option="",
)  # fmt: skip


def masks(mask: str, draw_mask: Callable[[Generator, bool], Tensor], seed: int, indices: tuple[int, ...]) -> Tensor:
    """Draw the mask that all images share, (H, W), or one for each of the images, (B, 1, H, W).

    `mask` is "shared" or "fresh". `draw_mask` makes one mask (H, W) from a generator; its second argument says whether
    it is the one that all images share.
    """
    if mask == "shared":
        return draw_mask(Generator().manual_seed(PROTOCOL_SEED), True)
    return torch.stack([draw_mask(generator_for(seed, i, "mask"), False) for i in indices])[:, None]


class _Inpainting(BaseTask):
    """Pixels that are missing, whatever their pattern: what `firm restore --task inpainting` takes."""

    picture, picture_file = "inpainting", "mask"

    @classmethod
    def from_picture(
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Mask, Tensor, int]:
        """Take the picture for the measurement, with a mask that says where it was seen."""
        assert given is not None
        return Mask(given), picture, 0


class RandomInpainting(_Inpainting):
    """70 % of the pixels dropped, the same ones in all channels (Section 4)."""

    name, table = "random-inpainting", 4
    sigma = Parameter(float, BaseTask.sigma.about, 0.01, low=0, drawn="log")
    missing = Parameter(float, "share of pixels lost", 0.7, low=0, high=1, below=True, drawn="uniform")
    mask = MASK

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Mask:
        """Return the operator with the shared mask, or with those of the images."""
        return Mask(masks(self.mask, self.draw_mask, seed, indices))

    def draw_mask(self, generator: Generator, protocol: bool) -> Tensor:
        """Draw one mask, (H, W)."""
        if protocol:  # NumPy's legacy generator, as the reference code draws it: 4827 of 128x128 pixels kept
            drawn = np.random.RandomState(PROTOCOL_SEED).binomial(1, 1 - self.missing, self.shape)
            return torch.from_numpy(drawn).float()
        return random_mask(self.shape, 1 - self.missing, generator)

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Draw a mask for every sample, where they do not share one."""
        if self.mask == "shared":
            return self.constant(device)
        missing = self.sample("missing", rows, device).reshape(-1, 1, 1, 1)
        return Mask((rows.rand(1, *self.shape, device=device) >= missing).float(), check=False)


class BoxInpainting(_Inpainting):
    """A square of 40 of 128 (80 of 256) pixels is missing (Section 4)."""

    name, table = "box-inpainting", 5
    box = Parameter(int, "side of the hole", lambda shape: max(1, round(min(shape) * 40 / 128)), low=1, drawn="uniform")

    place = Parameter(
        str, "center, the paper's; anywhere: every image has its hole elsewhere", "center",
        choices=("center", "anywhere"), option="",
    )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Mask:
        """Return the mask with the hole in the center, or with a hole elsewhere for each image."""
        if self.place == "center":
            return Mask(box_mask(self.shape, self.box))
        u = torch.stack([torch.rand(2, generator=generator_for(seed, i, "mask")) for i in indices])
        return Mask(self._holes(torch.full((len(indices), 1), float(self.box)), u))

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Draw a hole for every sample where its side is a range or its place is anywhere."""
        if "box" not in self.ranges and self.place == "center":
            return self.constant(device)
        side = self.sample("box", rows, device)[:, None]
        u = torch.full((len(side), 2), 0.5, device=device) if self.place == "center" else rows.rand(2, device=device)
        return Mask(self._holes(side, u), check=False)

    def _holes(self, side: Tensor, u: Tensor) -> Tensor:
        """Masks (B, 1, H, W) with holes of side (B, 1), placed by u in [0, 1], (B, 2): 0.5 is the center."""

        def inside(length: int, share: Tensor) -> Tensor:
            first = ((length - side) * share[:, None]).floor().clamp(min=0)
            position = torch.arange(length, device=side.device)
            return (position >= first) & (position < first + side)  # (B, length)

        rows_in, columns_in = (inside(n, share) for n, share in zip(self.shape, u.unbind(1), strict=True))
        return 1 - (rows_in[:, :, None] & columns_in[:, None, :]).float()[:, None]


class StrokeInpainting(_Inpainting):
    """Straight strokes between random points are missing."""

    name = "stroke-inpainting"
    sigma = Parameter(float, BaseTask.sigma.about, 0.01, low=0, drawn="log")
    strokes = Parameter(int, "number of strokes", 8, low=1)
    width = Parameter(
        float, "width of the strokes, in pixels", lambda shape: min(shape) * 6 / 128, low=0, above=True, drawn="uniform"
    )
    mask = MASK

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Mask:
        """Return the operator with the shared mask, or with those of the images."""
        return Mask(masks(self.mask, self.draw_mask, seed, indices))

    def draw_mask(self, generator: Generator, protocol: bool) -> Tensor:
        """Draw one mask, (H, W)."""
        return stroke_mask(self.shape, self.strokes, self.width, generator)

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Draw a mask for every sample, where they do not share one."""
        if self.mask == "shared":
            return self.constant(device)
        ends = rows.rand(self.strokes, 2, 2, device=device)
        return Mask(draw_strokes(ends, self.sample("width", rows, device), self.shape), check=False)
