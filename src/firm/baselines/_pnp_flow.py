"""PnP-Flow: a gradient step on the data, noise up to the flow's time, the flow's denoiser (Martin et al., 2025)."""

from __future__ import annotations

import torch
from torch import Tensor

from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Prior, Progress, begin, clean, noise_source
from firm.operators.base import LinearOperator


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
