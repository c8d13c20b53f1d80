"""D-Flow: the noise whose image fits the measurements, by optimization through the flow (Ben-Hamu et al., 2024)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from firm._sampling import Generators
from firm.acceleration.graphs import replayed
from firm.baselines._common import Prior, Progress, at_time, begin, noise_source
from firm.baselines._dormand_prince import integrate
from firm.baselines._lbfgs import minimize, start
from firm.operators.base import LinearOperator

Sign = Literal["published", "corrected"]
STEPS = 5  # of the midpoint rule from noise to images, which gradients pass through


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
    if outer < 1 or inner < 1:
        raise ValueError(f"d_flow: outer and inner must be at least 1, got {outer} and {inner}")
    if sign not in get_args(Sign):
        raise ValueError(f'd_flow: sign must be "published" or "corrected", got {sign!r}')
    if not 0 <= blend <= 1:
        raise ValueError(f"d_flow: blend must be between 0 and 1, got {blend}")
    if not 0 <= regularization < float("inf"):
        raise ValueError(f"d_flow: regularization must be a number of at least 0, got {regularization}")
    like = begin(prior, op, y, sigma)
    noise = noise_source(like, generator)

    def evaluate(z: Tensor) -> Tensor:
        with torch.enable_grad(), torch.autocast(z.device.type, enabled=False):
            z = z.detach().requires_grad_()
            f = objective(prior, op, y, z, regularization, sign)
            (g,) = torch.autograd.grad(f.sum(), z)  # the images do not share terms: every row is its own gradient
        return torch.cat([f.detach()[:, None], g.flatten(1)], dim=1)

    evaluate = replayed(evaluate, y.device)

    def value_and_gradient(z: Tensor) -> tuple[Tensor, Tensor]:
        out = evaluate(z.reshape(like.shape))
        return out[:, 0].clone(), out[:, 1:].clone()  # the next evaluation overwrites it

    z = blend**0.5 * integrate(prior, like, 1.0, 0.0) + (1 - blend) ** 0.5 * noise()
    state = start(z.flatten(1), history=100)
    for i in range(outer):
        minimize(value_and_gradient, state, inner)
        if callback is not None:
            callback(i + 1, outer, to_images(prior, state.z.reshape(like.shape)))
    return to_images(prior, state.z.reshape(like.shape))


def objective(prior: Prior, op: LinearOperator, y: Tensor, z: Tensor, regularization: float, sign: Sign) -> Tensor:
    """|A T(z) - y|^2 + regularization R(z) of every image, (B,)."""
    residual = op.A(to_images(prior, z)) - y
    fit = (residual * residual.conj()).real.flatten(1).sum(1)
    return fit + regularization * norm_penalty(z, sign)


def norm_penalty(z: Tensor, sign: Sign) -> Tensor:
    """R(z) of every image, (B,). The bounds of the square and of the logarithm are the published code's."""
    square = z.flatten(1).square().sum(1)
    unlikely = (square / 2).clamp(max=1e6) - (z[0].numel() - 1) * torch.log(square.sqrt() + 1e-5)
    return unlikely if sign == "corrected" else -unlikely


def to_images(prior: Prior, z: Tensor) -> Tensor:
    """T(z): the flow from noise z at t = 0 to images at t = 1, by midpoint steps."""
    dt = 1 / STEPS
    for i in range(STEPS):
        t = i * dt
        z = z + dt * at_time(prior, z + dt / 2 * at_time(prior, z, t), t + dt / 2)
    return z
