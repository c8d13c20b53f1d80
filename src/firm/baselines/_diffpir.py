"""DiffPIR: reverse diffusion whose clean estimate is made consistent with the data (Zhu et al., 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Denoiser, Progress, begin, noise_source
from firm.operators import first_guess
from firm.operators.base import LinearOperator, data_consistency

TIMES, BETA = 1000, (1e-4, 2e-2)  # of the variance-preserving diffusion


@torch.no_grad()
def diffpir(
    denoiser: Denoiser,
    op: LinearOperator,
    y: Tensor,
    sigma: float,
    *,
    steps: int = 100,
    weight: float = 1.0,
    zeta: float = 1.0,
    generator: Generators = None,
    callback: Progress | None = None,
) -> Tensor:
    """Restore images (B, C, H, W) from `y`. Network calls: steps.

    The state is x = sqrt(a) (x_1 + s n), with s^2 = (1 - a)/a for the diffusion's a = prod (1 - beta). From a first
    guess and noise, for times that lie ever denser towards the end:

        x_1 = D(x / sqrt(a), s), clamped to [-1, 1]
        u   = argmin |A u - y|^2 + rho |u - x_1|^2,    rho = weight sigma^2 / s^2
        n   = (x / sqrt(a) - u) / s
        x   = sqrt(a') u + sqrt(1 - a') (sqrt(1 - zeta) n + sqrt(zeta) eps)

    and u of the last time is the result. Where levels fall slowly, zeta > 0 and images are of N(m, c I), the mean of u
    follows the minimum of |A u - y|^2 / (2 sigma^2) + weight |u - m|^2 / (2 (c + s^2)): the posterior's mean at
    weight 1, as s goes to 0.

    Parameters
    ----------
    weight
        lambda. The published code mixes units (docs/baselines.md); `firm.baselines.catalog` has the resulting values.
    zeta
        Share of fresh noise.
    """
    sensible = steps >= 1 and weight > 0 and 0 <= zeta <= 1
    require(sensible, f"diffpir: needs steps >= 1, weight > 0, zeta in [0, 1], got {steps}, {weight}, {zeta}")
    begin(denoiser, op, y, sigma, solves=True)
    require(sigma > 0, "diffpir: sigma, the noise level of y, must be positive")
    a = _noise_levels(steps).to(y.device)
    x = first_guess(op, y)
    noise = noise_source(x, generator)
    x = a[0].sqrt() * x + (1 - a[0]).sqrt() * noise()

    def estimate(x: Tensor, a: Tensor) -> Tensor:
        s = ((1 - a) / a).sqrt()
        x_1 = denoiser(x / a.sqrt(), s.expand(len(x))).clamp(-1, 1)
        return data_consistency(op, x_1, y, (weight * sigma**2 / s**2).expand(len(x)))

    estimate = replayed(estimate, y.device, op)
    for i in range(steps):
        now = a[i].to(x)
        u = estimate(x, now).clone()
        if i + 1 < steps:
            n = (x - now.sqrt() * u) / (1 - now).sqrt()
            mixed = (1 - zeta) ** 0.5 * n + zeta**0.5 * noise()
            x = a[i + 1].sqrt() * u + (1 - a[i + 1]).sqrt() * mixed
        if callback is not None:
            callback(i + 1, steps, u)
    return u


def _noise_levels(steps: int) -> Tensor:
    """a = prod (1 - beta) at `steps` of the diffusion's times, from the noisiest: T - floor(sqrt(linspace(0, T^2)))."""
    a = (1 - torch.linspace(*BETA, TIMES, dtype=torch.float64)).cumprod(0)
    passed = torch.linspace(0, TIMES**2, steps, dtype=torch.float64).sqrt().floor().long().clamp(max=TIMES - 1)
    return a[TIMES - 1 - passed].float()
