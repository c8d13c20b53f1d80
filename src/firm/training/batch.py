"""What an objective gets: clean images, times, and the source of its random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from firm.operators import LinearOperator
from firm.tasks import BaseTask, Rows
from firm.training.measurements import measure, measure_each


@dataclass(frozen=True)
class Batch:
    """One part of a batch. Random numbers come from its methods, so that they do not depend on how it was split."""

    x_1: Tensor  # clean images, (B, C, H, W), ordered by task
    t: Tensor  # stratified times, (B,)
    rows: Sequence[Rows]  # of the samples of each task
    tasks: Sequence[BaseTask]
    warm: bool = False  # the warm start of FIRM: a single network call

    def measure(self) -> tuple[LinearOperator, Tensor, Tensor]:
        """Operator, measurements and noise levels (B,) of the images, as the tasks draw them; in float32."""
        with torch.autocast(self.x_1.device.type, enabled=False):
            return measure(self.tasks, self.x_1, self.rows)

    def measure_each(self) -> list[tuple[LinearOperator, Tensor, Tensor, slice]]:
        """The same for each task apart, with the rows of the images that it measures."""
        with torch.autocast(self.x_1.device.type, enabled=False):
            drawn = measure_each(self.tasks, self.x_1, self.rows)
        ends = list(accumulate(len(r) for r in self.rows))
        return [(*d, slice(end - len(r), end)) for d, r, end in zip(drawn, self.rows, ends, strict=True)]

    def randn(self) -> Tensor:
        """Standard Gaussian noise in the shape of the images."""
        return torch.cat([r.randn(*self.x_1.shape[1:], device=self.x_1.device) for r in self.rows])

    def rand(self) -> Tensor:
        """Uniform numbers, (B,)."""
        return torch.cat([r.rand(device=self.x_1.device) for r in self.rows])
