"""The scale of A: its norm, and operators that are brought to a norm of 1."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from firm.operators.base import (
    LinearOperator,
    Operator,
    diagonal,
    has_closed_form,
    is_linear,
    name,
    normal,
    per_sample,
    projected,
)

SMALLEST, LARGEST = 0.12, 1.5  # the norms of the tasks that models are trained for lie between, see docs/operators.md


def norms(op: LinearOperator, like: Tensor, iterations: int = 5) -> Tensor:
    """Find the largest singular value of A on each of the images `like` (B, ...): (B,).

    Operators of this package that know it say it exactly, see `Operator.known_norm`; it is read from the device when an
    operator is first used, and kept on the CPU. For all others `iterations` power iterations of A'A on fixed noise, the
    same for every image, underestimate it slightly.
    """
    known = _known(op, like) if isinstance(op, Operator) else None
    if known is not None:
        return known.to(like.real.dtype).expand(len(like))
    generator = torch.Generator(like.device).manual_seed(0)
    single = torch.complex64 if like.is_complex() else torch.float32  # the same numbers in double precision
    x = torch.randn(like.shape[1:], generator=generator, dtype=single, device=like.device)
    x = x.to(like.dtype).expand(like.shape)
    smallest = torch.finfo(like.real.dtype).tiny
    for _ in range(iterations):
        x = normal(op, x / _sizes(x).clamp(min=smallest))
    return _sizes(x).flatten().sqrt()


def _known(op: Operator, like: Tensor) -> Tensor | None:
    buffers = list(op.buffers())
    if not buffers or any(b.is_inference() for b in buffers):
        return op.known_norm(like)
    about = (tuple(like.shape[1:]), like.dtype, sum(b._version for b in buffers))
    found = op.computed_once("norm", about, buffers[0], lambda: _as_nan(op.known_norm(like)).cpu())
    return None if bool(found.isnan().any()) else found


def _as_nan(norm: Tensor | None) -> Tensor:
    """What is not known, as a tensor that can be kept."""
    return torch.full((), math.nan, device="cpu") if norm is None else norm


def _sizes(x: Tensor) -> Tensor:
    """Euclidean norms of the samples of x, (B, 1, ..., 1)."""
    return torch.linalg.vector_norm(x.flatten(1), dim=1).reshape(-1, *[1] * (x.ndim - 1))


def unit_scale(found: Tensor) -> Tensor | None:
    """Return what A, y and sigma are multiplied by for operators of these norms (B,); None where that is 1 for all.

    FIRM is made for a norm of about 1: rho and the noise levels of training are absolute numbers. Norms from 0.12 to
    1.5 are left as they are: those of the tasks that the models were trained for lie there. Reads from the device.
    """
    far = (found > LARGEST) | ((found > 0) & (found < SMALLEST))
    return torch.where(far, 1 / found, 1) if bool(far.any()) else None


class Scaled(Operator):
    """c A, with a factor c for each sample, (B,), or one for all, (1,)."""

    factor: Tensor

    def __init__(self, op: LinearOperator, factor: Tensor) -> None:
        super().__init__(like=op)
        self.op: Any = op
        self.linear = is_linear(op)
        self.register_buffer("factor", factor)

    def A(self, x: Tensor) -> Tensor:
        """Measure, and multiply by c."""
        y: Tensor = self.op.A(x)
        return self._c(y) * y

    def A_adjoint(self, y: Tensor) -> Tensor:
        """c A'y."""
        x: Tensor = self.op.A_adjoint(self._c(y) * y)
        return x

    def normal(self, x: Tensor) -> Tensor:
        """A'A, times c^2."""
        return self._c(x).square() * normal(self.op, x)

    @property
    def closed_form(self) -> bool:
        """True where the operator itself has one."""
        return has_closed_form(self.op)

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Gamma/2 |c A x - y|^2 is gamma c^2 / 2 |A x - y / c|^2: the operator's own, or conjugate gradients."""
        if not self.closed_form:
            return super().prox_l2(z, y, gamma)
        x: Tensor = self.op.prox_l2(z, y / self._c(y), gamma * self._c(z).square())
        return x

    def precondition(self, r: Tensor, rho: Tensor) -> Tensor:
        """(c^2 A'A + rho I)^-1 is (A'A + rho / c^2 I)^-1 / c^2."""
        if not isinstance(self.op, Operator):
            return r
        c2 = self._c(r).square()
        s = self.op.precondition(r, rho / c2)
        return r if s is r else s / c2

    def diagonal(self, y: Tensor) -> Tensor | None:
        """That of A A', times c^2."""
        d = diagonal(self.op, y)
        return None if d is None else self._c(y).square() * d

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        """What y says of the images is what y / c does."""
        return projected(self.op, x, y / self._c(y))

    def _c(self, like: Tensor) -> Tensor:
        """The factors as they broadcast over `like`."""
        factor = self.factor if len(self.factor) == len(like) else self.factor[0]
        return per_sample(factor, like)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return name(self.op)  # messages are about the user's operator
