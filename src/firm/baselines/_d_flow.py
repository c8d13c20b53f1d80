"""D-Flow: the noise whose image fits the measurements, by optimization through the flow (Ben-Hamu et al., 2024)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Prior, Progress, at_time, begin, noise_source
from firm.baselines._lbfgs import LBFGS
from firm.operators.base import LinearOperator

Sign = Literal["published", "corrected"]
STEPS = 5  # of the midpoint rule from noise to images, which gradients pass through

# The seven stages of Dormand and Prince: where each one stands within the step, and how it weighs the slopes of the
# stages before it. The last one stands at the end of the step, where the next step begins: seven stages cost six
# network calls.
STAGES = (
    (1 / 5, (1 / 5,)),
    (3 / 10, (3 / 40, 9 / 40)),
    (4 / 5, (44 / 45, -56 / 15, 32 / 9)),
    (8 / 9, (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729)),
    (1.0, (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656)),
    (1.0, (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)  # order 5 minus order 4
FIRST_STEP, MOST_STEPS = 0.01, 1000


@torch.no_grad()
def d_flow(
    prior: Prior,
    op: LinearOperator,
    y: Tensor,
    sigma: float,
    *,
    regularization: float = 0.001,
    blend: float = 0.1,
    outer: int = 7,
    sign: Sign = "published",
    inner: int = 20,
    generator: Generators = None,
    callback: Progress | None = None,
) -> Tensor:
    """Restore images (B, C, H, W) from `y`: T(z) for the z that L-BFGS finds for

        min over z of |A T(z) - y|^2 + regularization R(z)

    where T integrates the flow from t = 0 to 1 by 5 midpoint steps. It starts from A'y, taken backwards to noise z_1:
    z = sqrt(blend) z_1 + sqrt(1 - blend) eps. `sigma` is checked, but plays no part.

    Network calls: 10 forward and 10 backward an evaluation, whose activations are held at once, and at most about
    1.25 x inner x outer evaluations; about 100 for the start (Dormand-Prince, tolerance 1e-5), 10 for the result.

    The published code takes a batch as one problem, for the optimization and for the step lengths on the way back.
    Here every image is its own, so that its result does not depend on its batch.

    Parameters
    ----------
    outer, inner
        Rounds of L-BFGS, and iterations in each; the history (100 pairs) is kept from round to round.
    sign
        "corrected": R(z) = |z|^2 / 2 - (d - 1) log |z| for images of d values, the negative log density of the norm of
        Gaussian noise. "published": minus that, with which the published numbers were made.
    """
    counts = outer >= 1 and inner >= 1
    require(counts, f"d_flow: outer and inner must be at least 1, got {outer} and {inner}")
    require(sign in get_args(Sign), f'd_flow: sign must be "published" or "corrected", got {sign!r}')
    require(0 <= blend <= 1, f"d_flow: blend must be between 0 and 1, got {blend}")
    weighs = 0 <= regularization < float("inf")
    require(weighs, f"d_flow: regularization must be a number of at least 0, got {regularization}")
    like = begin(prior, op, y, sigma)
    noise = noise_source(like, generator)

    def evaluate(z: Tensor) -> Tensor:
        """The objective of every image at the noise z (B, C, H, W), and its gradient: (B, 1 + C H W)."""
        with torch.enable_grad(), torch.autocast(z.device.type, enabled=False):
            z = z.detach().requires_grad_()
            f = _objective(prior, op, y, z, regularization, sign)
            (g,) = torch.autograd.grad(f.sum(), z)  # the images do not share terms: every row is its own gradient
        return torch.cat([f.detach()[:, None], g.flatten(1)], dim=1)

    evaluate = replayed(evaluate, y.device)

    def value_and_gradient(z: Tensor) -> tuple[Tensor, Tensor]:
        out = evaluate(z.reshape(like.shape))
        return out[:, 0].clone(), out[:, 1:].clone()  # the next evaluation overwrites it

    z = blend**0.5 * _integrate(prior, like, 1.0, 0.0) + (1 - blend) ** 0.5 * noise()
    state = LBFGS(z.flatten(1), history=100)
    for done in range(1, outer + 1):
        state.minimize(value_and_gradient, inner)
        if callback is not None:
            callback(done, outer, _to_images(prior, state.z.reshape(like.shape)))
    return _to_images(prior, state.z.reshape(like.shape))


def _objective(prior: Prior, op: LinearOperator, y: Tensor, z: Tensor, regularization: float, sign: Sign) -> Tensor:
    """|A T(z) - y|^2 + regularization R(z) of every image at the noise `z` (B, C, H, W), (B,)."""
    residual = op.A(_to_images(prior, z)) - y
    fit = (residual * residual.conj()).real.flatten(1).sum(1)
    square = z.flatten(1).square().sum(1)  # its bound and that of the logarithm are the published code's
    unlikely = (square / 2).clamp(max=1e6) - (z[0].numel() - 1) * torch.log(square.sqrt() + 1e-5)
    return fit + regularization * (unlikely if sign == "corrected" else -unlikely)


def _to_images(prior: Prior, z: Tensor) -> Tensor:
    """T(z): the flow from noise z at t = 0 to images at t = 1, by midpoint steps."""
    dt = 1 / STEPS
    for i in range(STEPS):
        t = i * dt
        z = z + dt * at_time(prior, z + dt / 2 * at_time(prior, z, t), t + dt / 2)
    return z


@torch.no_grad()
def _integrate(prior: Prior, x: Tensor, start: float, end: float, tolerance: float = 1e-5) -> Tensor:
    """The flow dx/dt = v(x, t) from `x` (B, C, H, W) at time `start` to time `end`, which may lie before it.

    The rule is that of Dormand and Prince, of order 5, with steps of its own for every image. A step is accepted where
    the root mean square of error / (tolerance + tolerance |x|) over the image is at most 1.
    """

    def attempt(x: Tensor, slope: Tensor, t: Tensor, h: Tensor) -> Tensor:
        """One step of length h (B,): the new x, its slope, and its error relative to the tolerance."""
        wide = h.reshape(-1, *[1] * (x.ndim - 1))
        slopes, new = [slope], x
        for place, weights in STAGES:
            new = x + wide * sum(w * k for w, k in zip(weights, slopes, strict=True))
            slopes.append(prior(new, t + place * h))
        error = wide * sum(w * k for w, k in zip(ERROR, slopes, strict=True))
        return torch.stack([new, slopes[-1], error / (tolerance + tolerance * torch.maximum(x.abs(), new.abs()))])

    attempt = replayed(attempt, x.device)
    t = x.new_full((len(x),), start)
    h = torch.full_like(t, FIRST_STEP if end > start else -FIRST_STEP)
    slope = prior(x, t)
    for _ in range(MOST_STEPS):
        left = end - t
        if not left.any():
            return x
        last = h.abs() >= left.abs()  # images that have arrived make steps of length zero
        h = torch.where(last, left, h)
        new, new_slope, error = attempt(x, slope, t, h)
        error = error.flatten(1).square().mean(1).sqrt()
        accepted = error <= 1
        wide = accepted.reshape(-1, *[1] * (x.ndim - 1))
        x, slope = torch.where(wide, new, x), torch.where(wide, new_slope, slope)
        t = torch.where(accepted, torch.where(last, end, t + h), t)
        h = h * (0.9 * error**-0.2).clamp(0.2, 10)
    raise RuntimeError(f"the flow could not be integrated in {MOST_STEPS} steps; are the network's values finite?")
