"""Different operators for different samples of one batch, so that one network call serves many tasks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm.operators.base import LinearOperator, Operator
from firm.operators.cg import solve_normal_equations
from firm.operators.checks import name
from firm.operators.packing import Layout, flatten


def group(parts: Sequence[tuple[LinearOperator, Tensor]]) -> tuple[Grouped, Tensor]:
    """Join operators and their measurements (B_i, ...) into one operator and one tensor of measurements (B, M).

    The measurements may differ in shape and be complex: each is flattened, as real numbers, and padded with zeros.
    Any operator will do, with a closed form or without. An adjoint is not checked here: see `dot_test`.
    """
    grouped = Grouped([op for op, _ in parts], [y for _, y in parts])
    return grouped, grouped.pack([y for _, y in parts])


class Grouped(Operator):
    """The first samples of a batch belong to the first operator, the next to the second, and so on; see `group`."""

    def __init__(self, ops: Sequence[LinearOperator], measurements: Sequence[Tensor]) -> None:
        super().__init__()
        self.ops = list(ops)
        self.registered = nn.ModuleList(op for op in ops if isinstance(op, nn.Module))  # the others keep their device
        self.sizes = [len(y) for y in measurements]
        self.layouts = [Layout.of(y) for y in measurements]
        self.length = max(layout.length for layout in self.layouts)

    def A(self, x: Tensor) -> Tensor:
        """Measure each group with its operator; (B, C, H, W) to (B, M)."""
        return self.pack([op.A(part) for op, part in zip(self.ops, self._split(x), strict=True)])

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply each group's adjoint; (B, M) to (B, C, H, W)."""
        return torch.cat([op.A_adjoint(part) for op, part in zip(self.ops, self.unpack(y), strict=True)])

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Each group's own closed form, or conjugate gradients where it has none."""
        per_sample = isinstance(gamma, Tensor) and gamma.ndim > 0
        gammas = self._split(gamma) if per_sample else [gamma] * len(self.sizes)  # type: ignore[arg-type]
        groups = zip(self.ops, self._split(z), self.unpack(y), gammas, strict=True)
        return torch.cat([_solve(op, z_i, y_i, gamma_i) for op, z_i, y_i, gamma_i in groups])

    def pack(self, measurements: Sequence[Tensor]) -> Tensor:
        """Measurements of the groups, (B_i, ...), as one tensor (B, M)."""
        flat = [flatten(y) for y in measurements]
        return torch.cat([F.pad(y, (0, self.length - y.shape[1])) for y in flat])

    def unpack(self, y: Tensor) -> list[Tensor]:
        """The inverse of `pack`."""
        parts = zip(self.layouts, self._split(y), strict=True)
        return [layout.unflatten(part[:, : layout.length]) for layout, part in parts]

    def _split(self, x: Tensor) -> list[Tensor]:
        if len(x) != sum(self.sizes):
            raise ValueError(f"{name(self)}: {len(x)} samples for groups of {self.sizes}")
        return list(x.split(self.sizes))


def _solve(op: LinearOperator, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
    if hasattr(op, "prox_l2"):
        x: Tensor = op.prox_l2(z, y, gamma)
        return x
    return solve_normal_equations(op, z, y, 1 / gamma)
