"""Complex images, as in magnetic resonance imaging, for networks that take real ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from firm.operators.base import LinearOperator, Operator, has_closed_form, is_linear, name, normal, shape


def as_real(op: LinearOperator) -> Operator:
    """Make an operator on complex images (B, C, H, W) one on real images (B, 2C, H, W), see `to_real`.

    Its adjoint is the one of the real inner product Re<., .>. It has a closed form where `op` has one; where not,
    conjugate gradients work on the real images, and keep the limits of `op`.
    """
    return AsReal(op)


def to_complex(x: Tensor) -> Tensor:
    """Turn real images (B, 2C, ...), all real parts first, then all imaginary parts, into complex ones (B, C, ...)."""
    if x.is_complex() or x.ndim < 2 or x.shape[1] % 2:
        raise ValueError(f"to_complex takes real images with an even number of channels, got {x.dtype} of {shape(x)}")
    return torch.complex(*x.chunk(2, dim=1))


def to_real(x: Tensor) -> Tensor:
    """Turn complex images (B, C, ...) into real ones (B, 2C, ...), real parts first: the inverse of `to_complex`."""
    return torch.cat([x.real, x.imag], dim=1)


class AsReal(Operator):
    """An operator on complex images that is given real ones, as `as_real` makes it."""

    def __init__(self, op: LinearOperator) -> None:
        super().__init__(like=op)
        self.op: Any = op
        self.linear = is_linear(op)

    def A(self, x: Tensor) -> Tensor:
        """Measure the complex image."""
        y: Tensor = self.op.A(to_complex(x))
        return y

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The complex adjoint, as real and imaginary parts."""
        return to_real(self.op.A_adjoint(y))

    def normal(self, x: Tensor) -> Tensor:
        """The wrapped operator's A'A."""
        return to_real(normal(self.op, to_complex(x)))

    @property
    def closed_form(self) -> bool:
        """True where the wrapped operator has one."""
        return has_closed_form(self.op)

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The wrapped operator's closed form, or conjugate gradients."""
        if self.linear and not self.closed_form:
            return super().prox_l2(z, y, gamma)
        return to_real(self.op.prox_l2(to_complex(z), y, gamma))

    def known_norm(self, like: Tensor) -> Tensor | None:
        """That of the operator on complex images."""
        known: Tensor | None = self.op.known_norm(to_complex(like)) if isinstance(self.op, Operator) else None
        return known

    def __repr__(self) -> str:
        return f"as_real({name(self.op)})"
