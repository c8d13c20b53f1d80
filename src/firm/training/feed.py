"""The images of a training step: drawn, cropped and mirrored on the device, or read ahead where they do not fit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from firm._util.distributed import Ranks
from firm._util.seeds import generator_for
from firm.data.crops import crop_at, crop_scaled, gather_crops, positions
from firm.data.images import Images, to_float
from firm.data.prefetch import Prefetcher
from firm.tasks import Rows
from firm.training.config import TrainConfig


class Feed:
    """Draws images with replacement. A resident set lies on the device, and drawing from it fits into a CUDA graph.

    A mapped set (``mapped: true``) stays in its file: `ahead` reads the images of the coming steps in the background,
    and the step works on what it got.
    """

    def __init__(self, config: TrainConfig, images: Images, ranks: Ranks) -> None:
        self.config, self.ranks = config, ranks
        self.count, self.shape = len(images), images.shape
        self.resident = None if config.mapped else images.data.to(ranks.device)
        self._images = images
        self._reader: Prefetcher | None = None

    def ahead(self, step: int, counts: Sequence[int]) -> Tensor | None:
        """For a mapped set, the stored values of this process's images in `step`; None for a resident one.

        `counts` are the samples of each task in a part of the batch.
        """
        if self.resident is not None:
            return None
        if self._reader is None:
            self._reader = Prefetcher(self._images, lambda step: self._indices(step, counts), step)
        return self._reader.get(step).to(self.ranks.device, non_blocking=True)

    def _indices(self, step: int, counts: Sequence[int]) -> Tensor:
        """Which images this process needs in a step: part by part, in each the rows of every task."""
        c, r = self.config, self.ranks
        drawn = torch.randint(self.count, (c.batch,), generator=generator_for(c.seed, step, "images"))
        tasks = drawn.split([n * r.world * c.accumulate for n in counts])
        parts = range(r.rank * c.accumulate, (r.rank + 1) * c.accumulate)
        return torch.cat([rows[n * p : n * (p + 1)] for p in parts for rows, n in zip(tasks, counts, strict=True)])

    def draw(self, rows: Sequence[Rows], read: Tensor | None, device: torch.device) -> Tensor:
        """Images (B, C, size, size) for the `rows` of every task, from the device or out of those `read` ahead."""
        parts = [None] * len(rows) if read is None else read.split([len(r) for r in rows])
        return torch.cat([self._part(r, part, device) for r, part in zip(rows, parts, strict=True)])

    def _part(self, r: Rows, read: Tensor | None, device: torch.device) -> Tensor:
        c = self.config
        if read is None:
            assert self.resident is not None
            index = (r.rand(device=device) * self.count).long().clamp(max=self.count - 1)
            x = self._cropped(r, self.resident, index, device)
        else:
            x = self._cropped(r, read, None, device)
        if not c.flips:
            r.rand(1, 1, 1, device=device)  # drawn all the same: what follows does not depend on the setting
            return x
        return torch.where(r.rand(1, 1, 1, device=device) < 0.5, x.flip(-1), x)

    def _cropped(self, r: Rows, data: Tensor, index: Tensor | None, device: torch.device) -> Tensor:
        c, (H, W) = self.config, self.shape[1:]
        if c.crop == "center":
            return to_float(data if index is None else data[index])
        if not c.scale:
            top, left = (positions(r.rand(device=device), n, c.size) for n in (H, W))
            square = crop_at(data, top, left, c.size) if index is None else gather_crops(data, index, top, left, c.size)
            return to_float(square)
        low, high = c.scale
        side = c.size / (low * (high / low) ** r.rand(device=device))  # an enlarged image shows fewer pixels
        side = side.clamp(max=min(H, W))
        top, left = (r.rand(device=device) * (n - side) for n in (H, W))
        return crop_scaled(to_float(data if index is None else data[index]), top, left, side, c.size)

    def close(self) -> None:
        """End reading ahead."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
