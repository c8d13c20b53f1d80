"""Complex images, as in magnetic resonance imaging, for networks that take real ones."""

from __future__ import annotations

import torch
from torch import Tensor

from firm.operators.base import LinearOperator, Operator, Prox
from firm.operators.cg import MAX_ITERATIONS
from firm.operators.checks import name, shape


def as_real(op: LinearOperator) -> Operator:
    """An operator on complex images (B, C, H, W) as one on real images (B, 2C, H, W): see `to_real`.

    Its adjoint is the one of the real inner product Re<., .>. It has a closed form where `op` has one; where not,
    conjugate gradients work on the real images, and keep the limits of `op`.
    """
    return AsReal(op)


def to_complex(x: Tensor) -> Tensor:
    """Real images (B, 2C, ...), all real parts first, then all imaginary parts, as complex ones (B, C, ...)."""
    if x.is_complex() or x.ndim < 2 or x.shape[1] % 2:
        raise ValueError(f"to_complex takes real images with an even number of channels, got {x.dtype} of {shape(x)}")
    real, imaginary = x.chunk(2, dim=1)
    return torch.complex(real, imaginary)


def to_real(x: Tensor) -> Tensor:
    """The inverse of `to_complex`."""
    if not x.is_complex():
        raise ValueError(f"to_real takes complex images, got {x.dtype} of shape {shape(x)}")
    return torch.cat([x.real, x.imag], dim=1)


class AsReal(Operator):
    """What `as_real` returns."""

    def __init__(self, op: LinearOperator) -> None:
        super().__init__()
        self.op = op
        self.cg_tol = getattr(op, "cg_tol", None)
        self.cg_iterations = getattr(op, "cg_iterations", MAX_ITERATIONS)

    def A(self, x: Tensor) -> Tensor:
        """Measure the complex image."""
        return self.op.A(to_complex(x))

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The complex adjoint, as real and imaginary parts."""
        return to_real(self.op.A_adjoint(y))

    @property
    def prox_l2(self) -> Prox:
        """The wrapped operator's closed form, if it has one."""
        prox: Prox = self.op.prox_l2  # type: ignore[attr-defined]
        return lambda z, y, gamma: to_real(prox(to_complex(z), y, gamma))

    def __repr__(self) -> str:
        return f"as_real({name(self.op)})"
