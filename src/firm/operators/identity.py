"""Denoising: y = x + noise."""

from __future__ import annotations

from torch import Tensor

from firm.operators.base import Operator
from firm.operators.checks import require_shape, shape


class Identity(Operator):
    """A = I, for arrays of any shape (B, ...)."""

    def A(self, x: Tensor) -> Tensor:
        """Return `x`."""
        return x

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Return `y`."""
        return y

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The weighted average (y + rho z) / (1 + rho) with rho = 1/gamma (equation (81), Appendix B.4)."""
        require_shape(self, "y", y, shape(z))
        return (gamma * y + z) / (gamma + 1)
