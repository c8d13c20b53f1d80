"""The noise of several tasks, side by side in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from firm.noise.base import Noise, Rows
from firm.noise.gaussian import Gaussian
from firm.operators.base import LinearOperator, data_consistency


def grouped(noises: Sequence[Noise | Tensor], op: LinearOperator) -> Noise | Tensor:
    """Join the noise of the groups of a batch whose operator is `op`, as `firm.operators.compose.group` made it.

    Each is a noise model on its group's measurements, as `Noise.on` returns it, or the noise levels (B_i,). Where there
    are levels alone, so is the result, (B,).
    """
    levels = [noise for noise in noises if isinstance(noise, Tensor)]
    return torch.cat(levels) if len(levels) == len(noises) else _Grouped(noises, op)


class _Grouped(Noise):
    """The first samples of a batch have the first noise, the next the second, and so on, as their operators have."""

    takes_complex = True  # those that do not have refused before

    def __init__(self, noises: Sequence[Noise | Tensor], op: Any) -> None:
        super().__init__()
        self.noises = nn.ModuleList(
            noise if isinstance(noise, Noise) else Gaussian(noise.reshape(-1, *[1] * like.ndim), check=False)
            for noise, like in zip(noises, op.like, strict=True)
        )
        self._op = [op]  # no module of this one

    def on(self, op: LinearOperator, y: Tensor, like: Tensor) -> Noise:  # type: ignore[override]
        """The parts are on their measurements already."""
        return self

    def _parts(self, y: Tensor) -> list[tuple[Any, Any, Tensor]]:
        """Return noise, operator and measurements of every group."""
        group = self._op[0]
        return list(zip(self.noises, group.ops, group.unpack(y), strict=True))

    def neg_log_likelihood(self, u: Tensor, y: Tensor) -> Tensor:
        """Those of the groups."""
        parts = zip(self._parts(y), self._op[0].unpack(u), strict=True)
        return torch.cat([noise.neg_log_likelihood(each, y) for (noise, _, y), each in parts])

    def draw(self, u: Tensor, source: Rows | Generator | None = None) -> Tensor:
        """Every group is drawn by its task."""
        raise NotImplementedError("the measurements of several tasks are drawn apart")

    def std(self, u: Tensor) -> Tensor:
        """Those of the groups, side by side like their measurements."""
        packed: Tensor = self._op[0].pack([noise.std(u) for noise, _, u in self._parts(u)])
        return packed

    def level(self, y: Tensor) -> Tensor:
        """Those of the groups, (B,)."""
        return torch.cat([noise.level(y) for noise, _, y in self._parts(y)])

    def prox(self, v: Tensor, y: Tensor, weight: float | Tensor) -> Tensor:
        """Every group takes its own."""
        raise NotImplementedError("the groups of a batch solve apart")

    def data_consistency(self, op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor) -> Tensor:
        """Solve each group with its operator and its noise."""
        parts, sizes = self._parts(y), self._op[0].sizes
        rhos = rho.flatten().split(sizes) if isinstance(rho, Tensor) and rho.ndim else [rho] * len(parts)
        groups = zip(parts, z.split(sizes), rhos, strict=True)
        return torch.cat([data_consistency(o, z, y, r, noise) for (noise, o, y), z, r in groups])

    def synchronizes(self, op: LinearOperator, y: Tensor) -> bool:
        """Whether any group does."""
        return any(noise.synchronizes(o, y) for noise, o, y in self._parts(y))

    def relative(self, op: LinearOperator, y: Tensor, like: Tensor) -> Tensor:
        """Those of the groups."""
        parts = zip(self._parts(y), like.split(self._op[0].sizes), strict=True)
        return torch.cat([noise.relative(o, y, like) for (noise, o, y), like in parts])
