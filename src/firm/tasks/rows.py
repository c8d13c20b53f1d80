"""Random numbers of a whole batch, of which a process keeps its rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """The part of a batch that this process works on.

    Every process draws the random numbers of the whole batch, after the same seed, and keeps its rows: a run does not
    depend on how the batch is split. Nothing here waits for the device, so a CUDA graph can hold it.
    """

    total: int
    start: int
    stop: int

    def rand(self, *shape: int, device: torch.device) -> Tensor:
        """Uniform numbers, (stop - start, *shape), out of those of the whole batch."""
        return torch.rand(self.total, *shape, device=device)[self.start : self.stop]

    def randn(self, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """The same, standard normal."""
        return torch.randn(self.total, *shape, device=device, dtype=dtype)[self.start : self.stop]

    def __len__(self) -> int:
        return self.stop - self.start
