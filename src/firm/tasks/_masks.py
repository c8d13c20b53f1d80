"""What tasks with a mask share: where it comes from, and pictures with holes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from firm._util.seeds import generator_for
from firm.operators import Mask
from firm.tasks.base import BaseTask
from firm.tasks.parameter import Parameter

PROTOCOL_SEED = 42  # of the mask that all images share


MASK = Parameter(
    str, "shared: all images have the mask that the protocol draws with seed 42; fresh: each image has its own",
    "shared", choices=("shared", "fresh"), option="",
)  # fmt: skip


class DrawsMasks(Protocol):
    """A task that draws its masks at random."""

    @property
    def mask(self) -> str:
        """Shared or fresh."""
        ...

    def draw_mask(self, generator: Generator, protocol: bool) -> Tensor:
        """One mask, (H, W); `protocol`: the one that all images share."""
        ...


def masks_for(task: DrawsMasks, seed: int, indices: tuple[int, ...]) -> Tensor:
    """The protocol's mask (H, W), or one for each of the images, (B, 1, H, W), as ``task.mask`` says."""
    if task.mask == "shared":
        return task.draw_mask(Generator().manual_seed(PROTOCOL_SEED), True)
    return torch.stack([task.draw_mask(generator_for(seed, i, "mask"), False) for i in indices])[:, None]


class Inpainting(BaseTask):
    """Pixels that are missing, whatever their pattern: what `firm restore --task inpainting` takes."""

    picture, picture_file = "inpainting", "mask"

    @classmethod
    def from_picture(
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Mask, Tensor, int]:
        """The picture, with a mask that says where it was seen."""
        assert given is not None
        return Mask(given), picture, 0
