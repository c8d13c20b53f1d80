"""Flower: the flow's destination, refined by the measurements, and a way back (Pourya et al., 2026)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Prior, Progress, begin, clean, noise_source
from firm.operators.base import LinearOperator, data_consistency


@torch.no_grad()
def flower(
    prior: Prior,
    op: LinearOperator,
    y: Tensor,
    sigma: float,
    *,
    steps: int = 100,
    averages: int = 1,
    gamma: Literal[0, 1] = 0,
    generator: Generators = None,
    callback: Progress | None = None,
) -> Tensor:
    """Restore images (B, C, H, W) from `y`. Network calls: steps x averages.

    From x ~ N(0, I), at t_i = i / N, i = 0 .. N - 1:

        x_1 = x + (1 - t) v(x, t)                                                      destination
        x*  = argmin |A u - y|^2 / (2 sigma^2) + |u - x_1|^2 / (2 nu^2)                refinement
        x   = (t + 1/N) x* + (1 - t - 1/N) eps                                         progression

    with nu^2 = (1 - t)^2 / (t^2 + (1 - t)^2). The refinement is `data_consistency` with rho = sigma^2 / nu^2: exact
    where the operator has a closed form, where the published code makes 50 conjugate gradient iterations.

    Parameters
    ----------
    averages
        Complete independent runs that are averaged: Flower1 and Flower5 of the paper.
    gamma
        1 adds a sample of N(0, (A'A / sigma^2 + I / nu^2)^-1) to x*, 0 does not.
    """
    counts = steps >= 1 and averages >= 1
    require(counts, f"flower: steps and averages must be at least 1, got {steps} and {averages}")
    require(gamma in (0, 1), f"flower: gamma must be 0 or 1, got {gamma}")
    like = begin(prior, op, y, sigma)
    require(sigma > 0, "flower: sigma, the noise level of y, must be positive")
    noise = noise_source(like, generator)
    noise_of_y = noise_source(y, generator) if gamma else None

    def refine(x: Tensor, t: Tensor, *drawn: Tensor) -> Tensor:
        x_1, rho = clean(prior, x, t), sigma**2 * (t**2 + (1 - t) ** 2) / (1 - t) ** 2
        b = y
        if drawn:  # the minimizer with noise on both terms is the sample (perturb and optimize)
            x_1, b = x_1 + sigma / rho.sqrt() * drawn[0], y + sigma * drawn[1]
        return data_consistency(op, x_1, b, rho.expand(len(x)))

    refine = replayed(refine, y.device, op)
    total = torch.zeros_like(like)
    for run in range(averages):
        x = noise()
        for i in range(steps):
            t = x.new_tensor(i / steps)
            drawn = (noise(), noise_of_y()) if noise_of_y is not None else ()
            refined = refine(x, t, *drawn)
            after = (i + 1) / steps
            x = after * refined + (1 - after) * noise() if i + 1 < steps else refined.clone()
            if callback is not None:
                callback(run * steps + i + 1, averages * steps, x)
        total += x / averages
    return total
