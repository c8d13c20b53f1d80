"""Random inpainting: single pixels are missing."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

from firm.operators import LinearOperator, Mask, random_mask
from firm.tasks._masks import MASK, PROTOCOL_SEED, Inpainting, masks_for
from firm.tasks.base import BaseTask, Rows
from firm.tasks.parameter import Parameter


class RandomInpainting(Inpainting):
    """70 % of the pixels dropped, the same ones in all channels (Section 4)."""

    name, table = "random-inpainting", 4
    sigma = Parameter(float, BaseTask.sigma.about, 0.01, low=0, drawn="log")
    missing = Parameter(float, "share of pixels lost", 0.7, low=0, high=1, below=True, drawn="uniform")
    mask = MASK

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Mask:
        """The shared mask, or those of the images."""
        return Mask(masks_for(self, seed, indices))

    def draw_mask(self, generator: Generator, protocol: bool) -> Tensor:
        """One mask, (H, W)."""
        if protocol:  # NumPy's legacy generator, as the reference code draws it: 4827 of 128x128 pixels kept
            drawn = np.random.RandomState(PROTOCOL_SEED).binomial(1, 1 - self.missing, self.shape)
            return torch.from_numpy(drawn).float()
        return random_mask(self.shape, 1 - self.missing, generator)

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """A mask for every sample."""
        if self.mask == "shared":
            return self.constant(device)
        missing = self.sample("missing", rows, device).reshape(-1, 1, 1, 1)
        return Mask((rows.rand(1, *self.shape, device=device) >= missing).float(), check=False)
