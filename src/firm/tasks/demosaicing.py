"""Demosaicing: every pixel has seen one color, as behind the filters on a camera's sensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from firm._util.checks import generator_for, require
from firm.operators import LinearOperator, Mask
from firm.tasks.base import BaseTask, Rows
from firm.tasks.parameter import Parameter

BAYER = ("rggb", "bggr", "grbg", "gbrg")  # the colors of the first two rows of two pixels


class Demosaicing(BaseTask):
    """One color a pixel, in a Bayer pattern or at random. Images have three channels: red, green, blue."""

    name, picture, color = "demosaicing", "demosaicing", True
    sigma = Parameter(float, BaseTask.sigma.about, 0.01, low=0, drawn="log")
    pattern = Parameter(
        str, "colors of a sensor's first four pixels, row by row; or random, any color anywhere", "rggb",
        choices=(*BAYER, "random"), picture={"choices": BAYER, "default": BAYER[0]},
    )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Mask:
        """Return the mask of the colors seen: that of all images, (3, H, W), or random ones of each, (B, 3, H, W)."""
        if self.pattern != "random":
            return Mask(_colors(self.pattern, self.shape))
        drawn = [torch.rand(self.shape, generator=generator_for(seed, i, "mask")) for i in indices]
        return Mask(_one_of_three(torch.stack(drawn)))

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Draw a random pattern for every sample, or take the same one for all."""
        if self.pattern != "random":
            return self.constant(device)
        return Mask(_one_of_three(rows.rand(*self.shape, device=device)), check=False)

    @classmethod
    def from_picture(
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Mask, Tensor, int]:
        """Take a sensor's raw picture, which is gray: each pixel is as bright as its color."""
        gray = bool((picture == picture[:, :1]).all())
        require(gray, "demosaicing takes the raw picture of a sensor, which is gray: this one has colors")
        seen = _colors(settings["pattern"], (int(picture.shape[-2]), int(picture.shape[-1])))
        return Mask(seen), seen * picture[:, :1], 0


def _colors(pattern: str, shape: tuple[int, int]) -> Tensor:
    """Return where red, green and blue are seen, (3, H, W), by a sensor with a Bayer `pattern` such as "rggb"."""
    seen = torch.zeros(3, *shape)
    for place, letter in enumerate(pattern):
        seen["rgb".index(letter), place // 2 :: 2, place % 2 :: 2] = 1
    return seen


def _one_of_three(u: Tensor) -> Tensor:
    """Choose one color a pixel, (B, 3, H, W), from numbers (B, H, W) in [0, 1)."""
    return torch.stack([(u >= k / 3) & (u < (k + 1) / 3) for k in range(3)], dim=1).float()
