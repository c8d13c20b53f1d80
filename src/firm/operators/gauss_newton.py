"""Nonlinear operators, y = f(x) + noise: their data-consistency step by damped Gauss-Newton, and its gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from firm._util.checks import require
from firm.operators.base import LinearOperator, Operator, _conjugate_gradients, _dot, data_consistency, shape

vjp: Any = torch.func.vjp  # whose types do not tell its two forms apart
STEP_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.02)  # of a Gauss-Newton step; 0, staying, is always one more


class NonlinearOperator(Operator):
    """Base of the operators whose ``A(x)`` is not linear. A subclass defines ``A`` and ``guess``.

    The data-consistency step becomes

        argmin F(x),    F(x) = 1/2 |A(x) - y|^2 + rho/2 |x - z|^2,

    found by ``newton_steps`` damped Gauss-Newton steps from z. Each is the linear step with the Jacobian J at x_k,

        d = argmin 1/2 |J d - (y - A(x_k))|^2 + rho/2 |d - (z - x_k)|^2,    x_{k+1} = x_k + s d,

    by ``cg_iterations`` conjugate gradients, with the s out of `STEP_LENGTHS` and 0 where F is least in each sample: F
    never rises. Nothing is read from the device, so that a CUDA graph can hold it. F may have several minima; the one
    that is found depends on z. The gradients in z, y and rho are those of an exact minimum, by the implicit function
    theorem; where the steps end before one, they are approximate. A subclass with a closed form overrides ``prox_l2``.
    """

    linear = False
    cg_tol: float | None = 0.0
    cg_iterations: int = 20
    newton_steps: int = 4

    @abstractmethod
    def guess(self, y: Tensor) -> Tensor:
        """Make images (B, ...) to start from, of the right shape, of measurements."""

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Return `guess`, which stands where a linear operator has A'y."""
        return self.guess(y)

    def linearized(self, x: Tensor) -> LinearOperator:
        """Return the Jacobian J at images `x`, (B, ...), as a linear operator."""
        return Jacobian(self, x)

    @property
    def closed_form(self) -> bool:
        """Tell whether ``prox_l2`` is a formula of this operator; where it is not, Gauss-Newton steps solve."""
        return getattr(self.prox_l2, "__func__", None) is not NonlinearOperator.prox_l2

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Find argmin gamma/2 |A(x) - y|^2 + 1/2 |x - z|^2; `gamma` is a float, or broadcasts over `z` (B, ...)."""
        gamma = torch.as_tensor(gamma, dtype=z.real.dtype, device=z.device) if isinstance(gamma, Tensor) else gamma
        rho = 1 / gamma if isinstance(gamma, Tensor) else torch.full((1,), 1 / gamma, dtype=z.dtype, device=z.device)
        rho = rho.expand(len(z), *[1] * (z.ndim - 1))
        x: Tensor = _GaussNewton.apply(z, y, rho, self)  # type: ignore[no-untyped-call]
        return x


class Jacobian(Operator):
    """The Jacobian J of a differentiable ``A`` at images x: J'w by reverse differentiation, and J v by that of J'.

    J' is linear, so that its own transpose does not depend on where it is taken: ``A`` is evaluated once, for all
    products. (Forward differentiation would evaluate it anew for each, and needs formulas that fewer functions have.)
    """

    def __init__(self, op: NonlinearOperator, x: Tensor) -> None:
        super().__init__(like=op)
        Ax, self._pull = vjp(op.A, x)
        self._push = vjp(lambda w: self._pull(w)[0], torch.zeros_like(Ax))[1]

    def A(self, x: Tensor) -> Tensor:
        """Map a direction in the images to that in the measurements, J v."""
        moved: Tensor = self._push(x)[0]
        return moved

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Map back, J'w."""
        back: Tensor = self._pull(y)[0]
        return back


class _Curvature(Operator):
    """The Hessian of 1/2 |A(x) - y|^2 as A'A of an operator: J'J v + sum_i (A(x) - y)_i (d^2 A_i) v."""

    def __init__(self, op: NonlinearOperator, x: Tensor, y: Tensor) -> None:
        super().__init__(like=op)

        def gradient(x: Tensor) -> Tensor:
            Ax, pull = vjp(op.A, x)
            slope: Tensor = pull(Ax - y)[0]
            return slope

        self._product = vjp(gradient, x)[1]  # the Hessian is its own transpose

    def A(self, x: Tensor) -> Tensor:
        return x

    def A_adjoint(self, y: Tensor) -> Tensor:
        turned: Tensor = self._product(y)[0]
        return turned


class _GaussNewton(torch.autograd.Function):
    """The minimum x of F. There J'(A(x) - y) + rho (x - z) = 0, so that with H v = g for the Hessian H of F

    the gradients are rho v in z, J v in y and -<v, x - z> in rho. The operator counts as a constant.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor, rho: Tensor, op: NonlinearOperator) -> Tensor:
        x = _minimize(op, z, y, rho)
        ctx.save_for_backward(x, z, y, rho)
        ctx.op = op
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor | None, Tensor, None]:
        x, z, y, rho = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            # A sample with negative curvature, which no minimum has, stops there: the gradient stays finite.
            v = _conjugate_gradients(_Curvature(ctx.op, x, y), rho, grad_outputs[0], None)
            of_y = ctx.op.linearized(x).A(v) if ctx.needs_input_grad[1] else None
        return rho * v, of_y, -_dot(v, x - z), None


def _minimize(op: NonlinearOperator, z: Tensor, y: Tensor, rho: Tensor) -> Tensor:
    """Make the Gauss-Newton steps that `NonlinearOperator` describes; `rho` is (B, 1, ..., 1)."""

    def objective(x: Tensor, Ax: Tensor) -> Tensor:
        misfit = _dot(Ax - y, Ax - y).flatten()
        return (misfit + (rho * _dot(x - z, x - z)).flatten()) / 2

    x, Ax = z, op.A(z)
    least = objective(x, Ax)
    for _ in range(op.newton_steps):
        d = data_consistency(op.linearized(x), z - x, y - Ax, rho)
        start = x
        for s in STEP_LENGTHS:
            tried = start + s * d
            measured = op.A(tried)
            value = objective(tried, measured)
            better = value < least  # false for NaN: a step out of where A is defined is not made
            x, Ax = _where(better, tried, x), _where(better, measured, Ax)
            least = torch.where(better, value, least)
    return x


def _where(sample: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Take whole samples of `a` where `sample`, (B,), is true, and of `b` elsewhere."""
    return torch.where(sample.reshape(-1, *[1] * (a.ndim - 1)), a, b)


def nonlinear(
    f: Callable[[Tensor], Tensor], image_shape: tuple[int, ...] | None = None, *,
    guess: Callable[[Tensor], Tensor] | None = None, newton_steps: int = 4, cg_iterations: int = 20,
) -> NonlinearOperator:  # fmt: skip
    """Make an operator of a differentiable function; `NonlinearOperator` says how the data-consistency step solves.

    The function takes a batch, must treat its samples independently, and is differentiated twice by ``torch.func.vjp``.
    One that is not differentiable is found, and refused, when `firm.sample` or `firm.restore` is given the
    operator (`jacobian_test` is that check). Parameters inside count as constants.

    Parameters
    ----------
    f
        Images (B, ...) to measurements (B, ...), real or complex.
    image_shape
        Shape of one image, such as (C, H, W). Needed where `guess` is not given.
    guess
        Makes images to start from of measurements. By default J(0)'(y - f(0)), which is A'y where f is linear; it is
        of no use where f does not change at 0, as |x|^2, and then the images are all 0.
    newton_steps, cg_iterations
        Gauss-Newton steps, and conjugate gradients in each of them: both are always made.

    Example
    -------
    >>> op = nonlinear(torch.tanh, image_shape=(1, 2, 2))
    >>> op.prox_l2(torch.zeros(1, 1, 2, 2), torch.full((1, 1, 2, 2), 0.5), 1e6)[0, 0, 0]  # close to atanh(0.5)
    tensor([0.5493, 0.5493])
    """
    known = guess is not None or image_shape is not None
    require(known, "nonlinear: give image_shape=(C, H, W), or guess, a function of y that makes images to start from")
    op = FunctionOfImages(f, guess, image_shape)
    op.newton_steps, op.cg_iterations = newton_steps, cg_iterations
    return op


class FunctionOfImages(NonlinearOperator):
    """An operator that calls the user's function, as `nonlinear` makes it."""

    def __init__(
        self, f: Callable[[Tensor], Tensor], guess: Callable[[Tensor], Tensor] | None,
        image_shape: tuple[int, ...] | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._f, self._guess = f, guess
        self.image_shape = None if image_shape is None else tuple(image_shape)

    def A(self, x: Tensor) -> Tensor:
        """Apply the user's function."""
        if self.image_shape is not None and x.shape[1:] != self.image_shape:
            raise ValueError(f"{self}: x has shape {shape(x)}, expected {(len(x), *self.image_shape)}")
        return self._f(x)

    def guess(self, y: Tensor) -> Tensor:
        """Apply the user's guess, or the transposed Jacobian at 0."""
        if self._guess is not None:
            return self._guess(y)
        assert self.image_shape is not None
        zero = torch.zeros(len(y), *self.image_shape, dtype=y.real.dtype, device=y.device)
        return self.linearized(zero).A_adjoint(y - self._f(zero))

    def extra_repr(self) -> str:
        """Show the function's name and the image shape."""
        label = getattr(self._f, "__name__", type(self._f).__name__)
        return label if self.image_shape is None else f"{label}, image_shape={self.image_shape}"
