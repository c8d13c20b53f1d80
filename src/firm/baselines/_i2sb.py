"""I2SB: a Schrödinger bridge from the degraded to the clean image, walked back in small steps (Liu et al., 2023)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Progress, begin, noise_source
from firm.operators import Downsample, LinearOperator, Mask, Subsample, first_guess

Bridge = Callable[..., Tensor]  # e(x, t) or e(x, degraded, t), estimates (x_n - clean) / s_n; t is (B,), see `TIMES`
INTERVALS = 1000
TIMES = torch.linspace(1e-4, 1, INTERVALS, dtype=torch.float64, device="cpu")  # what the network is given at step n


def mode_of(op: LinearOperator) -> tuple[float, bool]:
    """Return beta_max, and whether the bridge is the one without noise (OT-ODE), for an operator.

    Super-resolution has noise; deblurring, inpainting and operators that the publication does not treat have none.
    """
    return (0.3, False) if isinstance(op, Subsample | Downsample) else (1.0, True)


@cache
def schedule(beta_max: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the noise of the bridge at its 1000 steps, each result (1000,) in float64.

    The first is s_n^2, the variance between the clean image and step n; then come, for q(x_n | clean, degraded), the
    weight of the degraded image in its mean, s_n^2 / (s_n^2 + sbar_n^2), and its variance, s_n^2 sbar_n^2 / (s_n^2 +
    sbar_n^2), where sbar_n^2 is the variance beyond step n. Both sums count beta_n itself.

    The roots of beta grow linearly from that of 1e-4 towards that of beta_max / 1000 over 1000 steps, but turn back
    half-way, so that beta is symmetric and never reaches its nominal end.
    """
    require(0 < beta_max < float("inf"), f"i2sb: beta_max must be positive, got {beta_max}")
    ends = (1e-4**0.5, (beta_max / INTERVALS) ** 0.5)
    half = torch.linspace(*ends, INTERVALS, dtype=torch.float64)[: INTERVALS // 2].square()
    beta = torch.cat([half, half.flip(0)])
    s2, sbar2 = beta.cumsum(0), beta.flip(0).cumsum(0).flip(0)
    return s2, s2 / (s2 + sbar2), s2 * sbar2 / (s2 + sbar2)


def _spaced(steps: int) -> list[int]:
    """The indices 0 = n_0 < ... < n_N = 999 that N steps go through, as evenly as whole numbers can be."""
    require(1 <= steps < INTERVALS, f"i2sb: steps must be from 1 to {INTERVALS - 1}, got {steps}")
    return [round(i * (INTERVALS - 1) / steps) for i in range(steps + 1)]


def degraded_image(op: LinearOperator, y: Tensor, noise: Tensor, ode: bool) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return where the bridge begins, which pixels are measured, and what a conditioned network sees beside the state.

    The bridge begins at `y` where it is an image of the shape of `noise`, (B, C, H, W), at the enlarged one where it is
    a smaller image, at A'y otherwise. For a `Mask` the holes hold `noise`, and the second result is true where pixels
    are seen (weights are divided out); else it is None. Does not wait for the device.

    A conditioned network sees this image with zeros in its holes. On a bridge without noise (`ode`) and without holes
    it sees zeros alone: there the state and the degraded image together determine the clean image, and a network that
    saw both would learn to repeat its first estimate in every step.
    """
    if isinstance(op, Mask):
        known = op.mask != 0
        degraded = torch.where(known, y / op.mask, noise)
        return degraded, known, torch.where(known, degraded, torch.zeros_like(degraded))
    degraded = y if y.shape == noise.shape and not y.is_complex() else first_guess(op, y)
    return degraded, None, torch.zeros_like(degraded) if ode else degraded


def sees_degraded(bridge: object, conditioned: bool | None = None) -> bool:
    """Tell whether a network sees the degraded image beside the state, as `conditioned` or the network itself says."""
    images = getattr(bridge, "images", None)  # only the library's networks say it
    if images is None:
        return bool(conditioned)
    require(
        images <= 2 and conditioned in (None, images == 2),
        f"i2sb: this network sees {images} image{'s'[: images - 1]}; a bridge sees its state, "
        "and the degraded image too if it is conditioned",
    )
    return bool(images == 2)


@torch.no_grad()
def i2sb(
    bridge: Bridge,
    op: LinearOperator,
    y: Tensor,
    sigma: float,
    *,
    steps: int = 100,
    beta_max: float | None = None,
    ode: bool | None = None,
    conditioned: bool | None = None,
    generator: Generators = None,
    callback: Progress | None = None,
) -> Tensor:
    """Restore images (B, C, H, W) from `y`. Network calls: steps.

    The publication calls the clean image x_0 and the degraded one x_1, where FIRM's x_1 is clean; so they have names
    here. From x = degraded, n = 999, over the indices m < n of `_spaced` down to 0, with r = s_m^2 / s_n^2:

        clean = x - s_n e(x, t_n)                   or e(x, degraded, t_n), if `conditioned`
        x     = (1 - r) clean + r x + sqrt(r (s_n^2 - s_m^2)) eps          p(x_m | clean, x_n)

    without the noise in the last step, and in all for the OT-ODE. The result is that last x, as in the published code,
    and not the last `clean`: s_0 is not zero, and a share s_0^2 / s_n^2 of the state before stays in it.

    In inpainting the holes are Gaussian noise at first, and the seen pixels are set to their measured values after
    every step, plus the noise of q(x_m) where the bridge has noise: so the noise of `y` stays in them. (The published
    code adds that of q(x_0), a level of 0.01, to the result too; here the last step adds none.) `sigma` is not used.

    Parameters
    ----------
    bridge
        The network e(x, t), or e(x, degraded, t), trained with ``objective: bridge`` for this kind of measurement.
    steps
        N, from 1 to 999, which is the published number; few steps give less distortion, many sharper images.
    beta_max, ode
        Settings of the schedule, and whether the bridge is free of noise. They must match the training, and do so by
        default: 0.3 with noise in super-resolution, otherwise 1.0 without (see `mode_of`).
    conditioned
        Whether the network sees the degraded image too, with zeros in its holes, and zeros alone where the bridge has
        neither noise nor holes (``--cond-x1`` of the published code always shows it, and noise in the holes). By
        default it does if it is one of the library's on two images (`ResUNet`, `UNet`).
    """
    down = torch.tensor(_spaced(steps)).flip(0)
    usual = mode_of(op)
    beta_max, ode = usual[0] if beta_max is None else beta_max, usual[1] if ode is None else ode
    conditioned = sees_degraded(bridge, conditioned)
    coefficients = _coefficients(down[:-1], down[1:], beta_max)
    noise = noise_source(begin(bridge, op, y, sigma), generator)
    degraded, known, beside = degraded_image(op, y, noise(), ode)
    given = (beside,) if conditioned else ()

    def back(x: Tensor, t: Tensor, s: Tensor, r: Tensor, spread: Tensor, level: Tensor, eps: Tensor) -> Tensor:
        clean = x - s * bridge(x, *given, t.expand(len(x)))
        x = clean + r * (x - clean) + spread * eps
        return x if known is None else torch.where(known, degraded + level * eps, x)

    back = replayed(back, y.device)
    x, still = degraded, torch.zeros_like(degraded)
    for i, values in enumerate(coefficients.to(x.device, x.dtype)):
        x = back(x, *values, still if ode else noise()).clone()
        if callback is not None:
            callback(i + 1, steps, x)
    return x


def _coefficients(n: Tensor, m: Tensor, beta_max: float) -> Tensor:
    """t_n, s_n, r and the noise levels of p(x_m | clean, x_n) and of q(x_m), for each step from n to m, (N, 5)."""
    s2, _, variance = schedule(beta_max)
    r = s2[m] / s2[n]
    noisy = m > 0  # the last step is without noise
    return torch.stack(
        [TIMES[n], s2[n].sqrt(), r, noisy * (r * (s2[n] - s2[m])).sqrt(), noisy * variance[m].sqrt()], dim=1
    )
