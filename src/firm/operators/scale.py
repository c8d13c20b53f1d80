"""How large A is. The solver's rho and the noise levels of training are meant for an A of norm about 1."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from firm.operators.base import LinearOperator

SMALLEST, LARGEST = 0.1, 3.0  # beyond these the bundled models lose 2 dB and more (docs/operators.md)


@torch.no_grad()
def operator_norm(op: LinearOperator, images: Tensor | Sequence[int], iterations: int = 5) -> float:
    """The largest singular value of A, slightly underestimated: power iterations of A'A on fixed noise.

    `images` is their shape, (B, ...), or images on the device where A works.
    """
    like = images if isinstance(images, Tensor) else torch.empty(tuple(images))
    x = torch.randn(like.shape, generator=torch.Generator().manual_seed(0), dtype=like.dtype).to(like.device)
    square = 0.0
    for _ in range(iterations):
        x = op.A_adjoint(op.A(x / x.norm().clamp(min=torch.finfo(x.dtype).tiny)))
        square = float(x.norm())
    return square**0.5


def warn_of_scale(op: LinearOperator, like: Tensor, sigma: float | Tensor | None) -> None:
    """Warn where the norm of A is far from 1, or `sigma` above all it can measure, for images `like` (B, ...)."""
    norm = operator_norm(op, like)
    level = 0.0 if sigma is None else float(torch.as_tensor(sigma).max())
    if norm > 0 and level > 2 * norm:
        warnings.warn(
            f"sigma {level:.3g} is more than images in [-1, 1] can measure: it is the noise level of y for such images "
            "(25 of 255 is 2 * 25 / 255)",
            stacklevel=3,
        )
    if 0 < norm < SMALLEST or norm > LARGEST:
        warnings.warn(
            f"the norm of A is about {norm:.3g}, and FIRM is made for one of about 1 (neither rho nor the noise levels "
            f"of training are scaled): divide A, y and sigma by {norm:.3g}",
            stacklevel=3,
        )
