"""Compressed sensing in k-space: some lines of the Fourier transform (Appendix E)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from firm.operators import Fourier, LinearOperator, Operator, as_real, cartesian_mask
from firm.operators.patterns import CENTER
from firm.tasks.base import BaseTask, Rows
from firm.tasks.inpainting import MASK, masks
from firm.tasks.parameter import Parameter, Shape


def _paper_lines(shape: Shape) -> int:
    """56 of 256 columns; an odd width has an odd number of symmetric lines."""
    lines = max(1, round(shape[1] * 56 / 256))
    return lines if shape[1] % 2 == 0 else lines // 2 * 2 + 1


class FourierLines(BaseTask):
    """Cartesian lines of the orthonormal Fourier transform; sigma is that of the complex noise, both parts together."""

    name = "fourier"
    sigma = Parameter(float, "standard deviation of the complex noise, both parts together", 0.002, low=0, drawn="log")
    lines = Parameter(int, "number of k-space lines kept, at most the width", _paper_lines, low=1, drawn="uniform")
    mask = MASK
    images = Parameter(
        str, "real images, or complex ones given as their real, then their imaginary channels", "real",
        choices=("real", "complex"), option="",
    )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Operator:
        """Return the operator with the shared mask, or with those of the images."""
        return self._with(masks(self.mask, self.draw_mask, seed, indices), check=True)

    def _with(self, mask: Tensor, check: bool) -> Operator:
        if self.images == "complex":
            return as_real(Fourier(mask, check=check, complex_images=True))
        return Fourier(mask, check=check)

    def draw_mask(self, generator: Generator, protocol: bool) -> Tensor:
        """Draw one mask, (H, W)."""
        return cartesian_mask(self.shape, self.lines, generator)

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Draw symmetric random lines like `cartesian_mask`, once per sample, where they do not share a mask."""
        if self.mask == "shared":
            return self.constant(device)
        n = self.shape[1]
        lines = self.sample("lines", rows, device)
        half = (n + 1) // 2 - 1  # pairs (k, -k), k = 1 .. half
        score = rows.rand(half, device=device)
        score[:, : int(CENTER * n) // 2] = -1  # the lowest frequencies come first
        rank = score.argsort(1).argsort(1)
        pairs = (rank < ((lines - 1) / 2).floor()[:, None]).float()
        columns = torch.zeros(len(lines), n, device=device)
        columns[:, 0] = 1
        columns[:, 1 : half + 1] = pairs
        columns[:, n - half :] = pairs.flip(1)
        if n % 2 == 0:
            columns[:, n // 2] = (lines % 2 == 0).float()
        return self._with(columns[:, None, None], check=False)
