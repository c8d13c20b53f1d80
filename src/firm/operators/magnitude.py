"""Phase retrieval: a detector sees the magnitudes of a complex transform, and not its phases."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.base import LinearOperator, data_consistency, is_linear, name
from firm.operators.gauss_newton import NonlinearOperator


class Magnitude(NonlinearOperator):
    """A(x) = |B (x - black)| with a linear operator B, such as `Oversampled` or `Coded`.

    Several images may have the same magnitudes (of a Fourier transform the image and the same turned by 180 degrees):
    samples with different seeds find different ones, and `firm.restore` takes the one of least misfit as its image.

    Parameters
    ----------
    op
        The operator B; its closed form, or conjugate gradients, solve in every iteration.
    black
        The value of images where there is no light, which B measures as 0.
    iterations
        Of the data-consistency step, see `prox_l2`.
    """

    ambiguous = True

    def __init__(self, op: LinearOperator, black: float = -1.0, iterations: int = 8) -> None:
        super().__init__()
        require(is_linear(op), f"Magnitude: takes a linear operator, and {name(op)} is none")
        self.op: Any = op
        self.black, self.iterations = float(black), iterations

    def A(self, x: Tensor) -> Tensor:
        """Measure the magnitudes of images (B, C, H, W)."""
        magnitude: Tensor = self.op.A(x - self.black).abs()
        return magnitude

    def guess(self, y: Tensor) -> Tensor:
        """Transform back with all phases 0."""
        back: Tensor = self.op.A_adjoint(y + 0j)
        return (back.real if back.is_complex() else back) + self.black

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Go down from z by `iterations` steps that know the phases: with p = B x / |B x| of the last one,

            x = argmin gamma/2 |B x - y p|^2 + 1/2 |x - z|^2,

        a linear data-consistency step. |B x - y p| is at least the misfit ||B x| - y|, and equal to it at the last x:
        the objective never rises. Negative magnitudes, which noise makes, count as 0.
        """
        u = start = z - self.black
        y = y.clamp(min=0)
        for _ in range(self.iterations):
            Bu = self.op.A(u)
            phase = torch.sgn(Bu) + (Bu == 0)  # 1 where nothing arrives
            u = data_consistency(self.op, start, y * phase, 1 / gamma)
        return u + self.black

    def extra_repr(self) -> str:
        """Show what is black."""
        return f"black={self.black:g}"
