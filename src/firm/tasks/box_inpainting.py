"""Box inpainting: a hole in the center, or anywhere."""

from __future__ import annotations

import torch
from torch import Tensor

from firm._util.seeds import generator_for
from firm.operators import LinearOperator, Mask, box_mask
from firm.tasks._masks import Inpainting
from firm.tasks.base import Rows
from firm.tasks.parameter import Parameter


class BoxInpainting(Inpainting):
    """A square of 40 of 128 (80 of 256) pixels is missing (Section 4)."""

    name, table = "box-inpainting", 5
    box = Parameter(int, "side of the hole", lambda shape: max(1, round(min(shape) * 40 / 128)), low=1, drawn="uniform")

    place = Parameter(
        str, "center, the paper's; anywhere: every image has its hole elsewhere", "center",
        choices=("center", "anywhere"), option="",
    )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Mask:
        """The mask with the hole, or those of the images."""
        if self.place == "center":
            return Mask(box_mask(self.shape, self.box))
        u = torch.stack([torch.rand(2, generator=generator_for(seed, i, "mask")) for i in indices])
        return Mask(self._holes(torch.full((len(indices), 1), float(self.box)), u))

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """A hole for every sample where its side is a range or its place is anywhere."""
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
