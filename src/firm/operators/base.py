"""The operator protocol, and the data-consistency step that every velocity evaluation solves.

An operator is anything with ``A(x)`` and ``A_adjoint(y)``. If it also has ``prox_l2(z, y, gamma)`` the step uses that
closed form; if not, conjugate gradients. The names and ``gamma = 1/rho`` are deepinv's, so its linear physics fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from firm.operators.cg import MAX_ITERATIONS, solve_normal_equations
from firm.operators.checks import name, require_shape, shape

Prox = Callable[[Tensor, Tensor, float | Tensor], Tensor]  # prox_l2(z, y, gamma)


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

    Where there is no closed form, conjugate gradients stop at a relative residual of ``cg_tol`` (None: 1e-6 in
    float32, 1e-12 in float64) or after ``cg_iterations``. ``cg_tol = 0`` makes all iterations and tests nothing.
    """

    cg_tol: float | None = None
    cg_iterations: int = MAX_ITERATIONS

    @abstractmethod
    def A(self, x: Tensor) -> Tensor:
        """Measure images `x`, shape (B, ...)."""

    @abstractmethod
    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply the adjoint to measurements `y`; returns the shape of the images."""

    def forward(self, x: Tensor) -> Tensor:
        """Same as ``A(x)``."""
        return self.A(x)


def data_consistency(op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor, *, check: bool = True) -> Tensor:
    """Solve (A'A + rho I) x = A'y + rho z: line 3 of Algorithm 3, the normal equations (71) of Appendix B.1.

    The only place in FIRM that solves with the operator. Computes in float32 or better, also inside autocast, and
    is differentiable, twice, in z, y and rho.

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
    check
        Look for values that are not finite in y, rho <= 0, and a wrong adjoint. This reads values back from the
        device, so a loop checks in its first pass only.
    """
    with torch.autocast(z.device.type, enabled=False):
        z, y = _at_least_float32(z), _at_least_float32(y)
        rho = per_sample(rho, z)
        if check:
            check_measurement(op, z, y)
        if check or not isinstance(rho, Tensor):
            check_rho(op, rho)
        if hasattr(op, "prox_l2"):
            x: Tensor = op.prox_l2(z, y, 1 / rho)
        else:
            if check:
                _check_adjoint(op, z)
            x = solve_normal_equations(op, z, y, rho)
    require_shape(op, "the solution of the data-consistency step", x, shape(z))
    return x


def per_sample(value: float | Tensor, x: Tensor) -> float | Tensor:
    """Make `value` broadcast over `x` (B, ...): a float stays one, a value per sample (B,) becomes (B, 1, ..., 1)."""
    if not isinstance(value, Tensor):
        return float(value)
    value = value.to(x.device, x.real.dtype)
    if value.ndim == 0:
        return value
    if value.shape[0] != len(x) or value.numel() != len(x):
        raise ValueError(f"expected a float or one value per sample, ({len(x)},), got a tensor of {shape(value)}")
    return value.reshape(-1, *[1] * (x.ndim - 1))


def require_operator(op: object) -> None:
    """Raise ValueError for what has no A and A_adjoint, as a function."""
    if not (callable(getattr(op, "A", None)) and callable(getattr(op, "A_adjoint", None))):
        raise ValueError(
            f"op must be an operator, with A(x) and A_adjoint(y), but is of type {type(op).__name__}: "
            "firm.operators.from_functions(A, A_adjoint) makes one of functions"
        )


def check_measurement(op: LinearOperator, x: Tensor, y: Tensor) -> None:
    """Raise ValueError if `y` has values that are not finite, or not one measurement for every image of `x`."""
    if len(y) != len(x):
        raise ValueError(f"{name(op)}: {len(y)} measurements {shape(y)} for {len(x)} images {shape(x)}")
    bad = int((~y.isfinite()).sum())
    if bad:
        raise ValueError(f"{name(op)}: {bad} values of y, shape {shape(y)}, are NaN or infinite")


def check_rho(op: LinearOperator, rho: float | Tensor) -> None:
    """Raise ValueError unless `rho` is positive and finite."""
    smallest = float(rho.min()) if isinstance(rho, Tensor) else rho
    if not 0 < smallest < float("inf"):
        raise ValueError(f"{name(op)}: rho must be positive and finite, got {smallest}")


def _check_adjoint(op: LinearOperator, z: Tensor) -> None:
    from firm.operators.testing import dot_test  # testing imports this module

    dot_test(op, shape(z), dtype=z.dtype, device=z.device)


def _at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
