"""Conjugate gradients for operators without a closed form ("General linear operators", Appendix B.4)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.checks import name, require_shape, shape

if TYPE_CHECKING:
    from firm.operators.base import LinearOperator

MAX_ITERATIONS = 500


def solve_normal_equations(op: LinearOperator, z: Tensor, y: Tensor, rho: float | Tensor) -> Tensor:
    """Solve (A'A + rho I) x = A'y + rho z by conjugate gradients from z, with gradients in z, y and rho.

    `z` is (B, ...), real or complex, `rho` a float or (B, 1, ..., 1). Every sample stops by itself, at a relative
    residual of 1e-6 in float32 and 1e-12 in float64, so its result does not depend on the rest of the batch. An
    operator changes that by its attributes ``cg_tol`` and ``cg_iterations``, see `conjugate_gradients`.

    The gradients are those of the exact solution, found by another solve of the same limits. Where these stop early,
    as the ten iterations of the tasks with a valid blur, the solution is approximate and so are its gradients: they are
    not the derivative of the iterations that were made.
    """
    Aty = op.A_adjoint(y)
    require_shape(op, "A_adjoint(y)", Aty, shape(z))
    if not isinstance(rho, Tensor):  # filled in, not copied: a CUDA graph cannot copy from the CPU
        rho = torch.full((1,), rho, dtype=z.real.dtype, device=z.device)
    rho = rho.expand(len(z), *[1] * (z.ndim - 1))
    x: Tensor = _SelfAdjointSolve.apply(Aty + rho * z, rho, z.detach(), op)  # type: ignore[no-untyped-call]
    return x


class _SelfAdjointSolve(torch.autograd.Function):
    """x = M^-1 b with M = A'A + rho I.

    M is self-adjoint, so the gradient of b is another solve, M^-1 g, and that of rho is -<M^-1 g, x>. Both are
    differentiable again. The operator counts as a constant, and so does the start, on which the exact solution does not
    depend. The user's A is never called in bfloat16, not by a backward pass inside autocast either.
    """

    @staticmethod
    def forward(ctx: Any, b: Tensor, rho: Tensor, start: Tensor | None, op: LinearOperator) -> Tensor:
        with torch.autocast(b.device.type, enabled=False):
            x = conjugate_gradients(
                lambda v: op.A_adjoint(op.A(v)) + rho * v,
                b,
                start=start,
                tol=getattr(op, "cg_tol", None),
                iterations=getattr(op, "cg_iterations", MAX_ITERATIONS),
                label=name(op),
            )
        ctx.save_for_backward(x, rho)
        ctx.op = op
        return x

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, rho = ctx.saved_tensors
        grad_b: Tensor = _SelfAdjointSolve.apply(grad_outputs[0], rho, None, ctx.op)  # type: ignore[no-untyped-call]
        grad_rho = -_dot(grad_b, x) if ctx.needs_input_grad[1] else None
        return grad_b, grad_rho, None, None


def conjugate_gradients(
    M: Callable[[Tensor], Tensor], b: Tensor, *, start: Tensor | None = None, tol: float | None = None,
    iterations: int = MAX_ITERATIONS, label: str = "conjugate gradients",
) -> Tensor:  # fmt: skip
    """Solve M x = b for every sample of `b` (B, ...), with M self-adjoint and positive definite in each sample.

    A sample whose residual has fallen to ``tol * |b|`` is frozen while the others go on. With ``tol=0`` there is no
    such test: all `iterations` are made and nothing is read back from the device, as a CUDA graph needs it. One
    iteration calls M once; a `start` other than zero costs one call more.
    """
    tol = tol if tol is not None else (1e-12 if b.real.dtype == torch.float64 else 1e-6)
    limits = f"{label}: cg_tol must be at least 0 and cg_iterations at least 1, got {tol} and {iterations}"
    require(tol >= 0 and iterations >= 1, limits)
    bb = _dot(b, b)
    x = torch.where(bb > 0, torch.zeros_like(b) if start is None else start, b)  # b = 0 has x = 0, and NaN stays NaN
    r = b if start is None else b - M(x)
    p, rr = r, _dot(r, r)
    goal = tol**2 * bb
    for _ in range(iterations):
        active = ~(rr <= goal) & bb.isfinite()
        if tol > 0 and not bool(active.any()):
            return x
        Mp = M(p)
        pMp = _dot(p, Mp)
        require(
            tol == 0 or bool((pMp > 0)[active].all()),
            f"{label}: A'A is not positive for images of shape {shape(b)}; A_adjoint is not the adjoint of A, or A "
            "returns NaN (see firm.operators.dot_test)",
        )
        active = active & (pMp != 0)  # it underflows where iterations go on long past convergence
        alpha = torch.where(active, rr / pMp, 0)
        x, r = x + alpha * p, r - alpha * Mp
        rr, rr_before = _dot(r, r), rr
        p = r + torch.where(active, rr / rr_before, 0) * p
    missed = rr > goal
    if tol > 0 and bool(missed.any()):
        worst = float((rr / bb)[missed].max().sqrt())
        warnings.warn(
            f"{label}: relative residual {worst:.1e} after {iterations} iterations of conjugate gradients (wanted "
            f"{tol:.0e}); raise the operator's cg_iterations or its cg_tol, or take a larger rho, which makes the "
            "system better conditioned",
            RuntimeWarning,
            stacklevel=2,
        )
    return x


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Real inner product Re<a, b> of each sample, (B, 1, ..., 1)."""
    product = (a.conj() * b).real if a.is_complex() else a * b
    return product.flatten(1).sum(1).reshape(-1, *[1] * (a.ndim - 1))
