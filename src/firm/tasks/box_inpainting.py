"""Box inpainting: a centred hole."""

from __future__ import annotations

import torch

from firm.operators import LinearOperator, Mask, box_mask
from firm.tasks._masks import Inpainting
from firm.tasks.parameter import Parameter
from firm.tasks.rows import Rows


class BoxInpainting(Inpainting):
    """A square of 40 of 128 (80 of 256) pixels is missing (Section 4)."""

    name, table = "box-inpainting", 5
    box = Parameter(int, "side of the hole", lambda shape: max(1, round(min(shape) * 40 / 128)), low=1, drawn="uniform")

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Mask:
        """The mask with the hole."""
        return Mask(box_mask(self.shape, self.box))

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """A hole for every sample where its side is a range."""
        if "box" not in self.ranges:
            return self.constant(device)
        side = self.sample("box", rows, device)[:, None]

        def inside(length: int) -> torch.Tensor:
            first = ((length - side) / 2).floor()
            position = torch.arange(length, device=device)
            return (position >= first) & (position < first + side)  # (B, length)

        rows_in, columns_in = (inside(n) for n in self.shape)
        return Mask(1 - (rows_in[:, :, None] & columns_in[:, None, :]).float()[:, None], check=False)
