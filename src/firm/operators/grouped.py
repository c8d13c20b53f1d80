"""Different operators for different samples of one batch, so that one network call serves many tasks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm.operators.base import Operator
from firm.operators.checks import name


def group(parts: Sequence[tuple[Operator, Tensor]]) -> tuple[Grouped, Tensor]:
    """Join operators and their measurements (B_i, ...) into one operator and one tensor of measurements (B, M).

    The measurements may differ in shape and be complex: each is flattened, as real numbers, and padded with zeros.
    """
    grouped = Grouped([op for op, _ in parts], [y for _, y in parts])
    return grouped, grouped.pack([y for _, y in parts])


class Grouped(Operator):
    """The first samples of a batch belong to the first operator, the next to the second, and so on; see `group`."""

    def __init__(self, ops: Sequence[Operator], measurements: Sequence[Tensor]) -> None:
        super().__init__()
        self.ops = nn.ModuleList(ops)
        self.sizes = [len(y) for y in measurements]
        self.shapes = [tuple(y.shape[1:]) for y in measurements]
        self.complex = [y.is_complex() for y in measurements]
        self.length = max(self._length(i) for i in range(len(ops)))

    def A(self, x: Tensor) -> Tensor:
        """Measure each group with its operator; (B, C, H, W) to (B, M)."""
        return self.pack([op.A(part) for op, part in zip(self._operators(), self._split(x), strict=True)])

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply each group's adjoint; (B, M) to (B, C, H, W)."""
        return torch.cat([op.A_adjoint(part) for op, part in zip(self._operators(), self.unpack(y), strict=True)])

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Each group's own closed form."""
        per_sample = isinstance(gamma, Tensor) and gamma.ndim > 0
        gammas = self._split(gamma) if per_sample else [gamma] * len(self.sizes)  # type: ignore[arg-type]
        groups = zip(self._operators(), self._split(z), self.unpack(y), gammas, strict=True)
        solve = [op.prox_l2(z_i, y_i, gamma_i) for op, z_i, y_i, gamma_i in groups]  # type: ignore[operator]
        return torch.cat(solve)

    def pack(self, measurements: Sequence[Tensor]) -> Tensor:
        """Measurements of the groups, (B_i, ...), as one tensor (B, M)."""
        flat = [(torch.view_as_real(y) if y.is_complex() else y).flatten(1) for y in measurements]
        return torch.cat([F.pad(y, (0, self.length - y.shape[1])) for y in flat])

    def unpack(self, y: Tensor) -> list[Tensor]:
        """The inverse of `pack`."""
        out = []
        for i, part in enumerate(self._split(y)):
            part = part[:, : self._length(i)]
            if self.complex[i]:
                out.append(torch.view_as_complex(part.reshape(len(part), *self.shapes[i], 2)))
            else:
                out.append(part.reshape(len(part), *self.shapes[i]))
        return out

    def _length(self, i: int) -> int:
        return torch.Size(self.shapes[i]).numel() * (2 if self.complex[i] else 1)

    def _operators(self) -> list[Operator]:
        return list(self.ops)  # type: ignore[arg-type]

    def _split(self, x: Tensor) -> list[Tensor]:
        if len(x) != sum(self.sizes):
            raise ValueError(f"{name(self)}: {len(x)} samples for groups of {self.sizes}")
        return list(x.split(self.sizes))
