"""JPEG: what quantization left open, between the blocks and within them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from firm.noise import Noise
from firm.operators import JPEG, LinearOperator
from firm.operators.jpeg import SUBSAMPLING, error_level, quality_tables
from firm.tasks.base import BaseTask, Rows
from firm.tasks.parameter import Parameter


class Compressed(BaseTask):
    """A picture that was compressed. Nothing else is lost: y has no noise, and sigma is what the network is told."""

    name, picture, picture_file, color = "jpeg", "jpeg", "itself", True
    sigma = Parameter(
        float, "noise level that the network is told, for pixels in [-1, 1]; 0: what the tables leave open", 0.0, low=0
    )
    jpeg_quality = Parameter(
        int, "quality of the compression, as most programs count it", 10, low=1, high=100, drawn="uniform"
    )
    subsampling = Parameter(
        str, "pixels that share a sample of color: one, two or four", "4:2:0", choices=tuple(SUBSAMPLING)
    )

    def __init__(self, size: int | tuple[int, int] = 128, **settings: Any) -> None:
        super().__init__(size, **settings)
        self._follows = self.sigma == 0
        if self._follows:
            luma, _ = quality_tables(torch.tensor([float(self.jpeg_quality)]))
            self.__dict__["sigma"] = round(float(error_level(luma)), 4)

    def build(self, values: Mapping[str, Tensor]) -> JPEG:
        """Make the tables of every sample."""
        return JPEG(*quality_tables(values["jpeg_quality"]), self.subsampling, self.shape)

    def draw(self, x: Tensor, rows: Rows) -> tuple[LinearOperator, Tensor, Tensor | Noise]:
        """Draw a quality for every sample; its noise level follows from it."""
        op, y, sigma = super().draw(x, rows)
        assert isinstance(op, JPEG)
        return op, y, error_level(op.luma[:, 0, 0]).expand(len(x)) if self._follows else sigma

    def observed(self, op: LinearOperator, x: Tensor, clean: Tensor, y: Tensor) -> Tensor:
        """Add no noise: a file holds whole numbers."""
        return clean
