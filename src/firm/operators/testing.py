"""Checks for any operator, ours or a user's: is the adjoint right, does the solve solve?"""

from __future__ import annotations

import torch
from torch import Tensor

from firm.operators.base import LinearOperator, data_consistency, per_sample
from firm.operators.checks import name, require_shape, shape


def dot_test(
    op: LinearOperator,
    x_shape: tuple[int, ...],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    tol: float | None = None,
    seed: int = 0,
) -> float:
    """Check <A x, y> = <x, A'y> on random x and y; return the relative error, raise ValueError above `tol`.

    `x_shape` is the shape of a batch, (B, ...). The default `tol` is 1e-3 in float32 and 1e-9 in float64, relative
    to |A x| |y|, which lets rounding and single-precision transforms pass but no wrong scale, sign or shift.
    """
    x = _randn(x_shape, dtype, device, seed)
    Ax = op.A(x)
    y = _randn(shape(Ax), Ax.dtype, device, seed + 1)
    Aty = op.A_adjoint(y)
    require_shape(op, "A_adjoint(y)", Aty, x_shape)
    gap = abs(float(_inner(Ax, y) - _inner(x, Aty)))
    error = gap / max(float(Ax.norm() * y.norm()), float(x.norm() * Aty.norm()), torch.finfo(dtype).tiny)
    if not error <= (tol if tol is not None else _tolerance(dtype)):
        raise ValueError(
            f"{name(op)}: A_adjoint is not the adjoint of A: <A x, y> and <x, A'y> differ by {error:.1e} of "
            f"|A x| |y| for x of shape {tuple(x_shape)} and y of shape {shape(y)}"
        )
    return error


def prox_test(
    op: LinearOperator,
    x_shape: tuple[int, ...],
    rho: float | Tensor = 0.01,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    tol: float | None = None,
    seed: int = 0,
) -> float:
    """Check that ``data_consistency`` solves (A'A + rho I) x = A'y + rho z; return the relative residual.

    Raises ValueError above `tol` (1e-3 in float32, 1e-9 in float64). The error of x is at most |A'A| / rho + 1 times
    the residual.
    """
    z = _randn(x_shape, dtype, device, seed)
    y = op.A(_randn(x_shape, dtype, device, seed + 1))
    x = data_consistency(op, z, y, rho)
    column = per_sample(rho, z)
    b = op.A_adjoint(y) + column * z
    residual = float((op.A_adjoint(op.A(x)) + column * x - b).norm() / b.norm())
    if not residual <= (tol if tol is not None else _tolerance(dtype)):
        raise ValueError(
            f"{name(op)}: the data-consistency step misses (A'A + rho I) x = A'y + rho z by {residual:.1e} "
            f"for z of shape {shape(z)} and y of shape {shape(y)}{_few_iterations(op)}"
        )
    return residual


def _few_iterations(op: LinearOperator) -> str:
    """What to say of an operator that stops its conjugate gradients early."""
    if hasattr(op, "prox_l2") or getattr(op, "cg_tol", None) != 0:
        return ""
    return (
        f"; it makes only {getattr(op, 'cg_iterations', 0)} iterations of conjugate gradients (cg_iterations, cg_tol)"
    )


def _tolerance(dtype: torch.dtype) -> float:
    return 1e-9 if dtype in (torch.float64, torch.complex128) else 1e-3


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """Real inner product, summed in double precision."""
    a, b = (v.to(torch.complex128 if v.is_complex() else torch.float64) for v in (a, b))
    return (a.conj() * b).real.sum()


def _randn(size: tuple[int, ...], dtype: torch.dtype, device: torch.device | str, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, dtype=dtype, generator=generator).to(device)
