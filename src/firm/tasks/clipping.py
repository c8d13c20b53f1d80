"""Clipping: what is brighter than white, or darker than black, was cut off (high dynamic range)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from firm._util.checks import require
from firm.operators import Clipping, LinearOperator
from firm.tasks.base import BaseTask
from firm.tasks.parameter import Parameter


class Clipped(BaseTask):
    """A sensor that saturates: noise is added before the limits cut it off, too."""

    name = "clipping"
    sigma = Parameter(float, BaseTask.sigma.about, 0.01, low=0, drawn="log")
    white = Parameter(
        float, "value at which pixels saturate, for pixels in [-1, 1]", 0.3, low=-1, high=1, above=True, drawn="uniform"
    )
    black = Parameter(
        float, "value below which pixels are black, for pixels in [-1, 1]", -1.0, low=-1, high=1, below=True,
        drawn="uniform",
    )  # fmt: skip

    def __init__(self, size: int | tuple[int, int] = 128, **settings: Any) -> None:
        super().__init__(size, **settings)
        whites, blacks = (self.ranges.get(key, (self.settings()[key],) * 2) for key in ("white", "black"))
        wrong = f"{self.name}: black must be below white, got {blacks[1]:g} and {whites[0]:g}"
        require(blacks[1] < whites[0], wrong)

    def build(self, values: Mapping[str, Tensor]) -> Clipping:
        """Make the limits of every sample."""
        return Clipping(values["black"], values["white"], check=False)

    def observed(self, op: LinearOperator, x: Tensor, clean: Tensor, y: Tensor) -> Tensor:
        """Cut off what the noise has moved."""
        return op.A(x + y - clean)
