"""PnP-GS: proximal gradient descent with a gradient-step denoiser (Hurault et al., 2022)."""

from __future__ import annotations

import torch
from torch import Tensor

from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Denoiser, Progress, begin
from firm.operators import Identity, Mask, first_guess
from firm.operators.base import LinearOperator

STRONG = 0.2  # inpainting: the denoiser's level while the holes are filled


@torch.no_grad()
def pnp_gs(
    denoiser: Denoiser,
    op: LinearOperator,
    y: Tensor,
    sigma: float,
    *,
    steps: int = 35,
    step_length: float = 2.0,
    relaxation: float = 0.5,
    factor: float = 1.8,
    filling: int = 20,
    generator: Generators = None,
    callback: Progress | None = None,
) -> Tensor:
    """Restore images (B, C, H, W) from `y`. Network calls: `steps`, each with a backward pass in a `GradientStep`.

    Nothing is drawn at random. From `first_guess` (A'y; bicubic interpolation for super-resolution), with L, a and f
    below,

        z = x - L A'(A x - y)
        x = (1 - a) z + a D(z, f sigma)

    With D = I - grad g a fixed point has L A'(A x - y) + a grad g(z) = 0: the pull of the data and that of the prior
    cancel. For a = 1 and D the proximal map of some phi, it is a critical point of L |A x - y|^2 / 2 + phi(x).

    As in the published comparisons, two operators are treated on their own:

    * `Identity` (denoising): the images are D(y, sigma), one network call.
    * `Mask` of zeros and ones (inpainting), from x = 1.5 y - A y: alternately x = D(x, s), and the pixels that were
      seen are put back, x = A y + x - A x, but for the last time. s is 0.2 in the first `filling` steps, which fill the
      holes, then sigma. L, a and f play no part.

    Parameters
    ----------
    steps
        Iterations. The defaults are those of deblurring on CelebA.
    step_length, relaxation, factor
        L, of the data step; a, the share of the denoised image; f, of the denoiser's level over the noise of `y`.
    filling
        Inpainting: steps at the level 0.2. Published: 20.
    """
    require(
        steps >= 1 and step_length > 0 and 0 < relaxation <= 1 and factor > 0,
        f"pnp_gs: need steps >= 1, step_length > 0, relaxation in (0, 1] and factor > 0, "
        f"got {steps}, {step_length}, {relaxation} and {factor}",
    )
    x = begin(denoiser, op, y, sigma)

    def level(s: float) -> Tensor:
        return torch.full((len(x),), s, dtype=x.dtype, device=x.device)

    if isinstance(op, Identity):
        return denoiser(y, level(sigma))
    inpainting = isinstance(op, Mask) and bool(((op.mask == 0) | (op.mask == 1)).all())

    def step(x: Tensor, s: Tensor) -> Tensor:
        if inpainting:
            return denoiser(x, s)
        z = x - step_length * op.A_adjoint(op.A(x) - y)
        return (1 - relaxation) * z + relaxation * denoiser(z, s)

    step = replayed(step, y.device)
    if inpainting:
        x, levels = 1.5 * y - op.A(y), [STRONG if i < filling else sigma for i in range(steps)]
    else:
        x, levels = first_guess(op, y), [factor * sigma] * steps
    for i, s in enumerate(levels):
        x = step(x, level(s))
        if callback is not None:
            callback(i + 1, steps, x)
        if inpainting and i + 1 < steps:
            x = op.A(y) + x - op.A(x)
    return x.clone()  # a recorded step keeps its result in memory of its own
