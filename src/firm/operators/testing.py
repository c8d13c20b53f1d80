"""Checks for any operator, ours or a user's: is the adjoint right, does the solve solve, how large is A?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.base import (
    LinearOperator,
    data_consistency,
    has_closed_form,
    is_linear,
    name,
    per_sample,
    shape,
)
from firm.operators.scale import norms

TINY, MOST = 1e-300, 1e30  # nothing is divided by 0, and nothing enlarged beyond float32


def dot_test(
    op: LinearOperator, x_shape: tuple[int, ...], *, dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu", tol: float | None = None, seed: int = 0,
) -> float:  # fmt: skip
    """Check that A is linear and that A' is its adjoint; return the relative error, raise ValueError above `tol`.

    `x_shape` is the shape of a batch, (B, ...). With random a and y, in every sample by itself:

        <A a, A a> = <a, A'A a>,    <A A'y, y> = <A'y, A'y>,    <A a, y> = <a, A'y>,
        A(0) = 0,    A(b - 2 a) = A b - 2 A a    with b = A'y, scaled.

    The first two compare numbers as large as they can be, so that a wrong scale, sign or kernel is as plain in a large
    image as in a small one; with independent a and y both sides of the third are near 0 there. The default `tol` is
    1e-3 in float32 and 1e-9 in float64, which lets rounding and single-precision transforms pass. Costs four
    applications of A and two of A'. An operator that says that it is not linear has `jacobian_test` instead.
    """
    if not is_linear(op):
        return jacobian_test(op, x_shape, dtype=dtype, device=device, seed=seed)
    tol = tol if tol is not None else _tolerance(dtype)
    a = _randn(x_shape, dtype, device, seed)
    Aa = op.A(a)
    if shape(Aa)[:1] != tuple(x_shape)[:1]:
        raise ValueError(f"{name(op)}: A maps {tuple(x_shape)} to {shape(Aa)}: not one measurement per image")
    y = _randn(shape(Aa), Aa.dtype, device, seed + 1)
    AtAa, b = op.A_adjoint(Aa), op.A_adjoint(y)
    if not shape(AtAa) == shape(b) == tuple(x_shape):
        raise ValueError(f"{name(op)}: A_adjoint(y) has shape {shape(b)}, expected {tuple(x_shape)}")
    Ab = op.A(b)
    _test_linear(op, a, Aa, b, Ab, tol)
    allowed = 10 * torch.finfo(Aa.dtype).eps / max(tol, 1e-12)  # rounding, where a sum happens to cancel
    pairs = [(Aa, Aa, a, AtAa), (Ab, y, b, b)]
    gaps = []
    for Av, w, v, Atw in pairs:
        left, right = _inner(Av, w), _inner(v, Atw)
        size = torch.stack([left.abs(), right.abs(), allowed * _norm(v) * _norm(Atw)]).amax(0).clamp(min=TINY)
        gaps.append((left - right).abs() / size)
    larger = torch.maximum(_norm(Aa) * _norm(y), _norm(a) * _norm(b)).clamp(min=TINY)
    gaps.append((_inner(Aa, y) - _inner(a, b)).abs() / larger)
    error = float(torch.stack(gaps).max())  # NaN where one is
    if not error <= tol:
        raise ValueError(
            f"{name(op)}: A_adjoint is not the adjoint of A: <A x, y> and <x, A'y> differ by {error:.1e} of their size "
            f"for x of shape {tuple(x_shape)} and y of shape {shape(y)}"
        )
    return error


def jacobian_test(
    op: Any, x_shape: tuple[int, ...], *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu",
    tol: float = 0.1, seed: int = 0,
) -> float:  # fmt: skip
    """Check the Jacobian J of a nonlinear operator at a random image x; return the relative error of J v.

    J v is compared with (A(x + h v) - A(x - h v)) / 2h, in every sample, and J' with J as in `dot_test`. Kinks of A, as
    of the absolute value, pass the default `tol`; an A that rounds, or detaches its result, does not: ValueError. An
    operator with a closed form needs no Jacobian, and has 0.
    """
    if has_closed_form(op):
        return 0.0
    x, v = (_randn(x_shape, dtype, device, s) for s in (seed, seed + 1))
    x = x.clamp(-1, 1)
    h = 1e-5 if dtype == torch.float64 else 2e-3
    try:
        J = op.linearized(x)
        exact, slope = J.A(v), (op.A(x + h * v) - op.A(x - h * v)) / (2 * h)
    except RuntimeError as error:
        raise ValueError(f"{name(op)}: A cannot be differentiated by torch.func.vjp: {error}") from error
    if shape(slope)[:1] != tuple(x_shape)[:1]:
        raise ValueError(f"{name(op)}: A maps {tuple(x_shape)} to {shape(slope)}: not one measurement per image")
    size = torch.maximum(_norm(exact), _norm(slope)).clamp(min=TINY)
    gap = float((_norm(exact - slope) / size).max())  # NaN where one is
    if not gap <= tol:
        raise ValueError(
            f"{name(op)}: the derivative of A along a direction differs from its finite difference by {gap:.1e} of "
            f"its size for images of shape {tuple(x_shape)}: A must be differentiable, without rounding or detaching"
        )
    dot_test(J, x_shape, dtype=dtype, device=device)
    return gap


def _test_linear(op: LinearOperator, a: Tensor, Aa: Tensor, b: Tensor, Ab: Tensor, tol: float) -> None:
    """Raise ValueError unless A(0) = 0 and A(s b - 2 a) = s A b - 2 A a, with s b as large as a."""
    size = _norm(Aa)
    nothing = float((_norm(op.A(torch.zeros_like(a))) / size.clamp(min=TINY)).max())
    if not nothing <= tol / 100:  # exactly 0 in all that multiplies, sums and transforms
        raise ValueError(
            f"{name(op)}: A is not linear: A(0) is not 0 but {nothing:.1e} of |A x| for images of shape {shape(a)}; "
            "take the offset out of A, and subtract it from y"
        )
    s = (_norm(a) / _norm(b).clamp(min=TINY)).clamp(max=MOST).to(a.real.dtype)
    of_a, of_b = (s.reshape(-1, *[1] * (v.ndim - 1)) for v in (a, Ab))
    gap = _norm(op.A(of_a * b - 2 * a) - (of_b * Ab - 2 * Aa))
    error = float((gap / (2 * size + s * _norm(Ab)).clamp(min=TINY)).max())
    if not error <= tol:
        raise ValueError(
            f"{name(op)}: A is not linear: A(x - 2 z) and A x - 2 A z differ by {error:.1e} of their size for images "
            f"of shape {shape(a)}; an offset, noise, clipping or rounding inside A?"
        )


def prox_test(
    op: LinearOperator, x_shape: tuple[int, ...], rho: float | Tensor = 0.01, *, dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu", tol: float | None = None, seed: int = 0,
) -> float:  # fmt: skip
    """Check that ``data_consistency`` solves (A'A + rho I) x = A'y + rho z; return the relative residual.

    Raises ValueError above `tol` (1e-3 in float32, 1e-9 in float64). The error of x is at most |A'A| / rho + 1 times
    the residual.
    """
    require(is_linear(op), f"{name(op)} is not linear: prox_test is for the normal equations of linear operators")
    z = _randn(x_shape, dtype, device, seed)
    y = op.A(_randn(x_shape, dtype, device, seed + 1))
    x = data_consistency(op, z, y, rho)
    column = per_sample(rho, z)
    b = op.A_adjoint(y) + column * z
    residual = float((op.A_adjoint(op.A(x)) + column * x - b).norm() / b.norm())
    if not residual <= (tol if tol is not None else _tolerance(dtype)):
        few = ""
        if not has_closed_form(op) and getattr(op, "cg_tol", None) == 0:
            made = getattr(op, "cg_iterations", 0)
            few = f"; it makes only {made} iterations of conjugate gradients (cg_iterations, cg_tol)"
        raise ValueError(
            f"{name(op)}: the data-consistency step misses (A'A + rho I) x = A'y + rho z by {residual:.1e} for z of "
            f"shape {shape(z)} and y of shape {shape(y)}{few}"
        )
    return residual


@torch.no_grad()
def operator_norm(op: LinearOperator, images: Tensor | Sequence[int], iterations: int = 5) -> float:
    """Find the largest singular value of A, exactly where the operator knows it, else slightly underestimated.

    FIRM is made for a norm of about 1; operators with one below 0.12 or above 1.5 are scaled inside `firm.prepare`.

    Parameters
    ----------
    op
        Any operator.
    images
        The shape of images, (B, ...), or images on the device where A works.
    iterations
        Power iterations of A'A on fixed noise, for operators that do not know their norm.
    """
    require(is_linear(op), f"{name(op)} is not linear, and has no norm")
    return float(norms(op, images if isinstance(images, Tensor) else torch.zeros(tuple(images)), iterations).max())


def _tolerance(dtype: torch.dtype) -> float:
    return 1e-9 if dtype in (torch.float64, torch.complex128) else 1e-3


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """Real inner product of every sample, (B,), summed in double precision."""
    a, b = (v.to(torch.complex128 if v.is_complex() else torch.float64).reshape(len(v), -1) for v in (a, b))
    return (a.conj() * b).real.sum(1)


def _norm(a: Tensor) -> Tensor:
    return _inner(a, a).sqrt()


def _randn(size: tuple[int, ...], dtype: torch.dtype, device: torch.device | str, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, dtype=dtype, generator=generator, device="cpu").to(device)
