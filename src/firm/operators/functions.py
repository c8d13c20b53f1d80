"""Operators from the user's own functions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.base import Operator, shape


def from_functions(
    A: Callable[[Tensor], Tensor], A_adjoint: Callable[[Tensor], Tensor] | None = None,
    image_shape: tuple[int, ...] | None = None, *, cg_tol: float | None = None, cg_iterations: int | None = None,
) -> Operator:  # fmt: skip
    """Make an operator of a linear function and its adjoint; the data-consistency step then uses conjugate gradients.

    Both functions take a batch and must treat its samples independently. A wrong adjoint is found, and refused, when
    `firm.sample` or `firm.restore` is given the operator (`dot_test` is that check). Anything the functions hold (coil
    maps, angles) stays on its own device.

    Parameters
    ----------
    A
        Images (B, ...) to measurements (B, ...), real or complex. Must be linear.
    A_adjoint
        Measurements to images. Without it the adjoint is the vector-Jacobian product of `A`, by autograd, for real
        images; each call of it costs one of `A` more.
    image_shape
        Shape of one image, such as (C, H, W). Needed where `A_adjoint` is not given.
    cg_tol
        Relative residual at which conjugate gradients stop; 0 makes all iterations. Default: see `Operator`.
    cg_iterations
        The most iterations, 500 by default; each calls `A` once and `A_adjoint` once.

    Example
    -------
    >>> op = from_functions(lambda x: x.cumsum(-1), image_shape=(1, 8, 8))
    >>> op.A_adjoint(torch.ones(1, 1, 8, 8))[0, 0, 0]
    tensor([8., 7., 6., 5., 4., 3., 2., 1.])
    """
    known = A_adjoint is not None or image_shape is not None
    require(known, "from_functions: give A_adjoint, or image_shape=(C, H, W) to have it derived by autograd")
    op = FunctionOperator(A, A_adjoint, image_shape)
    op.cg_tol = cg_tol
    op.cg_iterations = op.cg_iterations if cg_iterations is None else cg_iterations
    return op


class FunctionOperator(Operator):
    """An operator that calls the user's functions, as `from_functions` makes it."""

    def __init__(
        self,
        A: Callable[[Tensor], Tensor],
        A_adjoint: Callable[[Tensor], Tensor] | None,
        image_shape: tuple[int, ...] | None,
    ) -> None:
        super().__init__()
        self._A, self._A_adjoint = A, A_adjoint
        self.image_shape = None if image_shape is None else tuple(image_shape)

    def A(self, x: Tensor) -> Tensor:
        """Apply the user's function."""
        if self.image_shape is not None and x.shape[1:] != self.image_shape:
            raise ValueError(f"{self}: x has shape {shape(x)}, expected {(len(x), *self.image_shape)}")
        return self._A(x)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Apply the user's adjoint, or the vector-Jacobian product of A."""
        if self._A_adjoint is not None:
            return self._A_adjoint(y)
        assert self.image_shape is not None
        differentiable = torch.is_grad_enabled() and y.requires_grad
        with torch.enable_grad():
            x = torch.zeros(len(y), *self.image_shape, dtype=y.real.dtype, device=y.device, requires_grad=True)
            return torch.autograd.grad(self._A(x), x, y, create_graph=differentiable)[0]

    def extra_repr(self) -> str:
        """Show the function's name and the image shape."""
        label = getattr(self._A, "__name__", type(self._A).__name__)
        return label if self.image_shape is None else f"{label}, image_shape={self.image_shape}"
