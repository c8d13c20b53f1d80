"""Stroke inpainting, beyond the paper: scratches and writing."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from firm.operators import LinearOperator, Mask, stroke_mask
from firm.operators.patterns import draw_strokes
from firm.tasks._masks import MASK, Inpainting, masks_for
from firm.tasks.base import BaseTask, Rows
from firm.tasks.parameter import Parameter


class StrokeInpainting(Inpainting):
    """Straight strokes between random points are missing."""

    name = "stroke-inpainting"
    sigma = Parameter(float, BaseTask.sigma.about, 0.01, low=0, drawn="log")
    strokes = Parameter(int, "number of strokes", 8, low=1)
    width = Parameter(
        float, "width of the strokes, in pixels", lambda shape: min(shape) * 6 / 128, low=0, above=True, drawn="uniform"
    )
    mask = MASK

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Mask:
        """The shared mask, or those of the images."""
        return Mask(masks_for(self, seed, indices))

    def draw_mask(self, generator: Generator, protocol: bool) -> Tensor:
        """One mask, (H, W)."""
        return stroke_mask(self.shape, self.strokes, self.width, generator)

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """A mask for every sample."""
        if self.mask == "shared":
            return self.constant(device)
        ends = rows.rand(self.strokes, 2, 2, device=device)
        return Mask(draw_strokes(ends, self.sample("width", rows, device), self.shape), check=False)
