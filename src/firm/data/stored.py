"""Images that stay in their files until they are asked for, and the order in which a training run asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from firm._util.checks import generator_for


@dataclass(frozen=True, eq=False)
class Stored:
    """Stands for a tensor (n, C, H, W): indexing it reads the images that are asked for, and no others."""

    image: tuple[int, int, int]  # shape of one, (C, H, W)
    dtype: torch.dtype  # uint8 or float32
    read: Callable[[list[int]], Tensor]  # from the numbers of images in their files to the images
    shards: Tensor  # (n,), the number of the file, or part of one, that each lies in, from 0 on, in order
    about: Any  # what beside the names tells this set from another, without reading it
    first: int = 0  # the number of the first image in its files
    device = torch.device("cpu")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the tensor."""
        return len(self.shards), *self.image

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        """Read images, (B, C, H, W)."""
        return self.read((self.first + torch.arange(len(self.shards))[index]).tolist())

    def part(self, start: int | None, stop: int | None) -> Stored:
        """Return the images ``start:stop``; nothing is read."""
        first, last, _ = slice(start, stop).indices(len(self.shards))
        return replace(self, shards=self.shards[first:last], first=self.first + first)

    def streamed(self, place: int, count: int, shuffle: int, seed: int) -> Tensor:
        """Return the numbers (count,) of the images that stand at a `place` in an endless stream, and after it.

        Epoch follows epoch. In each, the shards come in a random order, and every image, in the order of its shard, at
        most about `shuffle` places earlier or later: so what is read lies close together. It is a function of the seed
        and the place alone, however many processes share the stream, and wherever a run goes on.
        """
        places = torch.arange(place, place + count)
        epochs = places // len(self.shards)
        return torch.cat([
            _epoch(self, int(e), shuffle, seed)[places[epochs == e] % len(self.shards)] for e in epochs.unique()
        ])  # fmt: skip


@lru_cache(maxsize=2)
def _epoch(images: Stored, number: int, shuffle: int, seed: int) -> Tensor:
    """Draw the order of all images in an epoch, (n,)."""
    g = generator_for(seed, number, "shards")
    order = torch.randperm(int(images.shards.max()) + 1, generator=g)[images.shards].argsort(stable=True)
    places = torch.arange(len(order)) + shuffle * torch.rand(len(order), generator=g, dtype=torch.float64)
    return order[places.argsort(stable=True)]
