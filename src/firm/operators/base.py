"""The operator protocol, and the data-consistency step that every velocity evaluation solves.

An operator is anything with ``A(x)`` and ``A_adjoint(y)``. If it also has ``prox_l2(z, y, gamma)`` the step uses that
closed form; if not, conjugate gradients. The names and ``gamma = 1/rho`` are deepinv's, so its linear physics fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from firm._util.checks import require
from firm.operators.cg import MAX_ITERATIONS, solve_normal_equations
from firm.operators.checks import require_shape, shape


@runtime_checkable
class LinearOperator(Protocol):
    """What FIRM asks of a forward operator; ``prox_l2`` is optional (see `data_consistency`)."""

    def A(self, x: Tensor) -> Tensor:
        """Measure images `x`, shape (B, ...)."""
        ...

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply the adjoint to measurements `y`; returns the shape of the images."""
        ...


class Operator(nn.Module, ABC):
    """Base of the operators in this package: immutable, buffers only, nothing random. Calling one applies A.

    Its ``prox_l2`` solves by conjugate gradients; a subclass that knows a closed form overrides it. The iterations stop
    at a relative residual of ``cg_tol`` (None: 1e-6 in float32, 1e-12 in float64) or after ``cg_iterations``.
    ``cg_tol = 0`` makes all iterations and tests nothing, so that nothing is read back from the device.

    Parameters
    ----------
    like
        An operator inside this one, whose ``cg_tol`` and ``cg_iterations`` hold for this one too.
    """

    cg_tol: float | None = None
    cg_iterations: int = MAX_ITERATIONS

    def __init__(self, like: object = None) -> None:
        super().__init__()
        for setting in ("cg_tol", "cg_iterations"):
            if hasattr(like, setting):
                setattr(self, setting, getattr(like, setting))

    @abstractmethod
    def A(self, x: Tensor) -> Tensor:
        """Measure images `x`, shape (B, ...)."""

    @abstractmethod
    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply the adjoint to measurements `y`; returns the shape of the images."""

    @property
    def closed_form(self) -> bool:
        """Whether ``prox_l2`` is a formula of this operator; where it is not, conjugate gradients solve."""
        return getattr(self.prox_l2, "__func__", None) is not Operator.prox_l2

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Solve (A'A + I/gamma) x = A'y + z/gamma; `gamma` is a float, or broadcasts over `z` (B, ...)."""
        return data_consistency(self, z, y, 1 / gamma)

    def forward(self, x: Tensor) -> Tensor:
        """Same as ``A(x)``."""
        return self.A(x)


def data_consistency(op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor) -> Tensor:
    """Solve (A'A + rho I) x = A'y + rho z: line 3 of Algorithm 3, the normal equations (71) of Appendix B.1.

    The only place in FIRM that solves with an operator: with its closed form, or by conjugate gradients. Computes in
    float32 or better, also inside autocast, and is differentiable, twice, in z, y and rho. The input is trusted, and
    nothing is read back from the device: `firm.prepare` looks at values, `dot_test` at a user's adjoint.

    Parameters
    ----------
    op
        The forward operator.
    z
        Current iterate, (B, ...).
    y
        Measurements, of the shape of ``op.A(z)``.
    rho
        Coupling rho = mu sigma^2 > 0: a float, or one value per sample, (B,).

    Returns
    -------
    The solution, in the shape of `z`.
    """
    with torch.autocast(z.device.type, enabled=False):
        z, y = (v.float() if v.dtype in (torch.float16, torch.bfloat16) else v for v in (z, y))
        rho = per_sample(rho, z)
        if has_closed_form(op):
            closed: Any = op
            x: Tensor = closed.prox_l2(z, y, 1 / rho)
        else:
            x = solve_normal_equations(op, z, y, rho)
    require_shape(op, "the solution of the data-consistency step", x, shape(z))
    return x


def has_closed_form(op: LinearOperator) -> bool:
    """Whether an operator, ours or a user's, brings a closed form of the data-consistency step."""
    return bool(getattr(op, "closed_form", hasattr(op, "prox_l2")))


def synchronizes(op: LinearOperator) -> bool:
    """Whether solving with the operator reads from the device: conjugate gradients do, unless ``cg_tol`` is 0."""
    return not has_closed_form(op) and getattr(op, "cg_tol", None) != 0


def per_sample(value: float | Tensor, x: Tensor) -> float | Tensor:
    """Make `value` broadcast over `x` (B, ...): a float stays one, a value per sample (B,) becomes (B, 1, ..., 1)."""
    if not isinstance(value, Tensor):
        return float(value)
    value = value.to(x.device, x.real.dtype)
    if value.ndim == 0:
        return value
    one_each = value.shape[0] == len(x) == value.numel()
    require(one_each, f"expected a float or one value per sample, ({len(x)},), got a tensor of {shape(value)}")
    return value.reshape(-1, *[1] * (x.ndim - 1))
