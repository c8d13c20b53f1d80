"""Conjugate gradients for operators without a closed form ("General linear operators", Appendix B.4)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from firm.operators.checks import name, require_shape, shape

if TYPE_CHECKING:
    from firm.operators.base import LinearOperator

MAX_ITERATIONS = 500


def solve_normal_equations(op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor) -> Tensor:
    """Solve (A'A + rho I) x = A'y + rho z by conjugate gradients, with gradients in z, y and rho.

    `z` is (B, ...), `rho` a float or (B, 1, ..., 1). Every sample stops by itself, at a relative residual of 1e-6
    in float32 and 1e-12 in float64, so its result does not depend on the rest of the batch.
    """
    Aty = op.A_adjoint(y)
    require_shape(op, "A_adjoint(y)", Aty, shape(z))
    rho = torch.as_tensor(rho, dtype=z.dtype, device=z.device).expand(len(z), *[1] * (z.ndim - 1))
    x: Tensor = _SelfAdjointSolve.apply(Aty + rho * z, rho, op)  # type: ignore[no-untyped-call]
    return x


class _SelfAdjointSolve(torch.autograd.Function):
    """x = M^-1 b with M = A'A + rho I.

    M is self-adjoint, so the gradient of b is another solve, M^-1 g, and that of rho is -<M^-1 g, x>. Both are
    differentiable again. The operator counts as a constant.
    """

    @staticmethod
    def forward(ctx: Any, b: Tensor, rho: Tensor, op: LinearOperator) -> Tensor:
        x = conjugate_gradients(lambda v: op.A_adjoint(op.A(v)) + rho * v, b, label=name(op))
        ctx.save_for_backward(x, rho)
        ctx.op = op
        return x

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, rho = ctx.saved_tensors
        grad_b: Tensor = _SelfAdjointSolve.apply(grad_outputs[0], rho, ctx.op)  # type: ignore[no-untyped-call]
        grad_rho = -_dot(grad_b, x) if ctx.needs_input_grad[1] else None
        return grad_b, grad_rho, None


def conjugate_gradients(
    M: Callable[[Tensor], Tensor], b: Tensor, *, tol: float | None = None, label: str = "conjugate gradients"
) -> Tensor:
    """Solve M x = b for every sample of `b` (B, ...), with M symmetric positive definite in each sample.

    A sample whose residual has fallen to ``tol * |b|`` is frozen while the others go on.
    """
    tol = tol if tol is not None else (1e-12 if b.dtype == torch.float64 else 1e-6)
    x, r, p = torch.zeros_like(b), b, b
    rr = _dot(r, r)
    goal = tol**2 * rr
    for _ in range(MAX_ITERATIONS):
        active = rr > goal
        if not bool(active.any()):
            return x
        Mp = M(p)
        pMp = _dot(p, Mp)
        if not bool((pMp > 0)[active].all()):
            raise ValueError(
                f"{label}: A'A is not positive for images of shape {shape(b)}; "
                "A_adjoint is not the adjoint of A, or A returns NaN (see firm.operators.dot_test)"
            )
        alpha = torch.where(active, rr / pMp, 0)
        x, r = x + alpha * p, r - alpha * Mp
        rr, rr_before = _dot(r, r), rr
        p = r + torch.where(active, rr / rr_before, 0) * p
    worst = float((rr / goal).max().sqrt() * tol)
    warnings.warn(
        f"{label}: relative residual {worst:.1e} after {MAX_ITERATIONS} iterations (wanted {tol:.0e}); "
        "a larger rho makes the system better conditioned",
        RuntimeWarning,
        stacklevel=2,
    )
    return x


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of each sample, (B, 1, ..., 1)."""
    return (a * b).flatten(1).sum(1).reshape(-1, *[1] * (a.ndim - 1))
