"""PnP-HQS (DPIR): an exact solve with the operator, then a denoiser, with ever less noise (Zhang et al., 2021)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Denoiser, Progress, begin
from firm.operators import first_guess
from firm.operators.base import LinearOperator, data_consistency

FIRST = 2 * 49 / 255  # DPIR's first noise level: 49/255 for images in [0, 1], twice that in [-1, 1]
FLOOR = 2 * 0.255 / 255  # and its smallest


@torch.no_grad()
def pnp_hqs(
    denoiser: Denoiser,
    op: LinearOperator,
    y: Tensor,
    sigma: float,
    *,
    steps: int = 24,
    weight: float = 0.23,
    first: float = FIRST,
    generator: Generators = None,
    callback: Progress | None = None,
) -> Tensor:
    """Restore images (B, C, H, W) from `y`. Network calls: steps. Nothing is drawn at random.

    From z = A'y (a smaller image is enlarged by bicubic interpolation), for sigma_k log-spaced from `first` to sigma:

        x = (A'A + rho_k I)^-1 (A'y + rho_k z),    rho_k = weight sigma^2 / sigma_k^2
        z = D(x, sigma_k)

    A single step is at the level sigma: where A = I it is the denoiser applied to y. For images of N(m, c I) and a
    constant level s the fixed point is x = argmin |A x - y|^2 / (2 sigma^2) + weight |x - m|^2 / (2 (c + s^2)).
    """
    positive = steps >= 1 and weight > 0 and first > 0
    require(positive, f"pnp_hqs: steps, weight and first must be positive, got {steps}, {weight} and {first}")
    begin(denoiser, op, y, sigma, solves=True)
    last = max(sigma, FLOOR)
    rho = weight * last**2

    def step(z: Tensor, s: Tensor) -> Tensor:
        x = data_consistency(op, z, y, (rho / s**2).expand(len(z)))
        return denoiser(x, s.expand(len(x)))

    step = replayed(step, y.device, op)
    z = first_guess(op, y)
    for k in range(steps):
        share = k / (steps - 1) if steps > 1 else 1.0
        z = step(z, z.new_tensor(math.exp((1 - share) * math.log(first) + share * math.log(last)))).clone()
        if callback is not None:
            callback(k + 1, steps, z)
    return z
