"""Transmission: what is left of a beam behind an object that absorbs it, as in computed tomography."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.base import LinearOperator, Operator, is_linear, name
from firm.operators.gauss_newton import NonlinearOperator


class Transmission(NonlinearOperator):
    """A(x) = exp(-scale B (x - black)) with a linear operator B, the lengths along the rays.

    Counts of an instrument are divided by those without an object, and the noise too. Where all counts are large,
    -log(y) / scale is a linear measurement; where few photons arrive its noise is far from Gaussian.

    Parameters
    ----------
    op
        The operator B, of a norm of about 1.
    scale
        The attenuation for a difference of 1 in the image.
    black
        The value of images where nothing absorbs.
    """

    def __init__(self, op: LinearOperator, scale: float = 1.0, black: float = -1.0) -> None:
        super().__init__()
        require(is_linear(op), f"Transmission: takes a linear operator, and {name(op)} is none")
        require(scale > 0, f"Transmission: scale must be positive, got {scale}")
        self.op: Any = op
        self.scale, self.black = float(scale), float(black)

    def A(self, x: Tensor) -> Tensor:
        """Measure which share of the beam arrives, from 0 to 1 where nothing emits."""
        return torch.exp(-self.scale * self.op.A(x - self.black))

    def guess(self, y: Tensor) -> Tensor:
        """Project the logarithm back; a share below 1e-3 counts as 1e-3."""
        back: Tensor = self.op.A_adjoint(-y.clamp(min=1e-3).log() / self.scale) + self.black
        return back

    def linearized(self, x: Tensor) -> Operator:
        """Return the Jacobian, J v = -scale A(x) B v."""
        return _Weighted(self.op, -self.scale * self.A(x), like=self)

    def extra_repr(self) -> str:
        """Show scale and black."""
        return f"scale={self.scale:g}, black={self.black:g}"


class _Weighted(Operator):
    """A v = w B v, with weights w in the shape of the measurements."""

    def __init__(self, op: LinearOperator, weights: Tensor, like: object) -> None:
        super().__init__(like=like)
        self.op: Any = op
        self._weights = weights

    def A(self, x: Tensor) -> Tensor:
        return self._weights * self.op.A(x)

    def A_adjoint(self, y: Tensor) -> Tensor:
        back: Tensor = self.op.A_adjoint(self._weights * y)
        return back
