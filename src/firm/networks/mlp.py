"""The small estimator of the toy problem, for points of the plane."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from firm.networks.settings import whole


class MLP(nn.Module):
    """The small estimator of the toy problem: [x, x_t, t] to a point of the plane."""

    def __init__(self, width: int = 128, depth: int = 3) -> None:
        super().__init__()
        width, depth = whole("MLP", "width", width, 65536), whole("MLP", "depth", depth, 1000)
        self.config: dict[str, Any] = dict(width=width, depth=depth)
        sizes = [5] + [width] * depth
        hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.SiLU())]
        self.layers = nn.Sequential(*hidden, nn.Linear(width, 2))

    def forward(self, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Estimate from `x` and `x_t`, both (B, 2), and `t`, (B,)."""
        if x.ndim != 2 or x.shape[1] != 2:
            raise ValueError(f"the toy problem's model takes points of the plane, (B, 2), got {tuple(x.shape)}")
        out: Tensor = self.layers(torch.cat([x, x_t, t[:, None]], dim=1))
        return out
