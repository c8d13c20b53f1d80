"""Plug-and-play: a step on the data and a denoiser by turns. PnP-Flow, PnP-GS, PnP-HQS (DPIR) and DiffPIR."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from firm._sampling import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Denoiser, Prior, Progress, begin, clean, noise_source
from firm.operators import Identity, Mask, first_guess
from firm.operators.base import LinearOperator, data_consistency

STRONG = 0.2  # inpainting: the denoiser's level while the holes are filled
FIRST = 2 * 49 / 255  # DPIR's first noise level: 49/255 for images in [0, 1], twice that in [-1, 1]
FLOOR = 2 * 0.255 / 255  # and its smallest
TIMES, BETA = 1000, (1e-4, 2e-2)  # of the variance-preserving diffusion


@torch.no_grad()
def pnp_flow(
    prior: Prior,
    op: LinearOperator,
    y: Tensor,
    sigma: float,
    *,
    steps: int = 100,
    averages: int = 1,
    alpha: float = 0.5,
    generator: Generators = None,
    callback: Progress | None = None,
) -> Tensor:
    """Restore images (B, C, H, W) from `y`. Network calls: steps x averages.

    At t_i = i / N, i = 0 .. N - 1:

        z = x - (1 - t)^alpha A'(A x - y)
        x = mean over `averages` draws of D_t(t z + (1 - t) eps)

    The step length is sigma^2 on the likelihood's gradient, so that sigma itself cancels. The start does not matter:
    t_0 = 0 discards it. For a Gaussian prior N(m, c I), D_t is affine, and at t -> 1 the iteration is gradient descent
    on |A x - y|^2 / 2, damped by the prior (see the tests for the recursion in closed form).

    Parameters
    ----------
    steps, averages
        N, and the draws averaged inside each step: PnP-Flow1 and PnP-Flow5 of the paper.
    alpha
        How fast the data step shrinks.
    """
    counts = steps >= 1 and averages >= 1
    require(counts, f"pnp_flow: steps and averages must be at least 1, got {steps} and {averages}")
    x = begin(prior, op, y, sigma)
    noise = noise_source(x, generator)

    def data_step(x: Tensor, t: Tensor) -> Tensor:
        return x - (1 - t) ** alpha * op.A_adjoint(op.A(x) - y)

    def denoise(z: Tensor, t: Tensor, eps: Tensor) -> Tensor:
        return clean(prior, t * z + (1 - t) * eps, t)

    data_step, denoise = (replayed(f, y.device) for f in (data_step, denoise))
    for i in range(steps):
        t = x.new_tensor(i / steps)
        z = data_step(x, t)
        x = torch.zeros_like(z)
        for _ in range(averages):
            x = x + denoise(z, t, noise()) / averages
        if callback is not None:
            callback(i + 1, steps, x)
    return x


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

    From `first_guess` (A'y; its bicubic interpolation for super-resolution), with L, a and f below,

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
    generator
        Not used: nothing is drawn.
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
    begin(denoiser, op, y, sigma)
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
    begin(denoiser, op, y, sigma)
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
