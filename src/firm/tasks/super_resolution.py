"""Super-resolution: pixels left out, with or without a filter before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from firm.operators import Downsample, Operator, Subsample
from firm.tasks.base import BaseTask
from firm.tasks.parameter import Parameter

FILTERS = ("stride", "bicubic", "box")
MARGIN = 8  # pixels of a small picture's mirror image that are put around it


class SuperResolution(BaseTask):
    """Every `factor`-th pixel. The paper's has no filter; a picture that a program made smaller has one."""

    name, table, picture = "super-resolution", 3, "super-resolution"
    factor = Parameter(
        int, "factor by which the sides shrink", lambda shape: 4 if min(shape) >= 256 else 2, low=1, option="scale",
        picture={"high": 8, "default": 2},
    )  # fmt: skip
    filter = Parameter(
        str, "how the picture was made smaller: stride (bare pixels, the paper's), bicubic or box", "stride",
        choices=FILTERS, picture={"default": "bicubic"},
    )  # fmt: skip

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Operator:
        """Return the filter, if any, followed by the stride."""
        return _operator(self.factor, self.filter, self.shape)

    @classmethod
    def from_picture(
        cls, picture: Tensor, settings: Mapping[str, Any], given: Tensor | None = None
    ) -> tuple[Operator, Tensor, int]:
        """Take the small picture for the measurement; its `filter` is bicubic where the user names no other."""
        scale, kind = settings["factor"], settings["filter"]
        margin = 0 if kind == "stride" else min(MARGIN, *picture.shape[-2:])  # filters are periodic, the world is not
        y = _mirrored(picture, margin)
        return _operator(scale, kind, (y.shape[-2] * scale, y.shape[-1] * scale)), y, margin * scale


def _mirrored(picture: Tensor, margin: int) -> Tensor:
    """Continue the picture (1, C, h, w) by its mirror image; its outermost pixels come twice, like the large ones."""
    for dim in (-2, -1):
        n = picture.shape[dim]
        index = torch.arange(-margin, n + margin)
        index = torch.where(index < 0, -1 - index, torch.where(index >= n, 2 * n - 1 - index, index))
        picture = picture.index_select(dim, index)
    return picture


def _operator(factor: int, kind: str, shape: tuple[int, int]) -> Operator:
    if kind != "stride":
        return Downsample(factor, kind)
    whole = all(n % factor == 0 for n in shape)
    return Subsample(factor, None if whole else shape)
