"""From noise to an image along the flow, with a correction by the data at every time: Flower, OT-ODE, Flow-Priors."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from firm._sampling import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Prior, Progress, at_time, begin, clean, noise_source
from firm.operators.base import LinearOperator, data_consistency

FIRST_TIME = 1e-3
MEAN_DECAY, SQUARE_DECAY, SMALLEST = 0.9, 0.999, 1e-8  # Adam's


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


@torch.no_grad()
def ot_ode(
    prior: Prior,
    op: LinearOperator,
    y: Tensor,
    sigma: float,
    *,
    steps: int = 100,
    start: float = 0.1,
    schedule: Literal["constant", "sqrt"] = "constant",
    spread: float = 1.0,
    generator: Generators = None,
    callback: Progress | None = None,
) -> Tensor:
    """Restore images (B, C, H, W) from `y`. Each of steps x (1 - start) steps: a network call, and one backward pass.

    From x = t_0 A'y + (1 - t_0) eps, Euler steps of length 1/N of the guided velocity

        v' = v + (1 - t)/t gamma_t g,    g = u + (1 - t) J_v' u,    u = A'(r^2 A A' + sigma^2 I)^-1 (y - A x_1)

    with x_1 = x + (1 - t) v and r^2 = (1 - t)^2 / ((1 - t)^2 + t^2). For images of a standard normal distribution r^2
    is the variance of x_1 given x, g the gradient of log p(y | x), and with gamma_t = 1 the flow ends in the posterior.

    The inverse is that of `data_consistency`, whose solution is x_1 + r^2 u with rho = sigma^2 / r^2.

    Parameters
    ----------
    start
        t_0, in (0, 1).
    schedule
        gamma_t: 1 ("constant") or sqrt(t / (t^2 + (1 - t)^2)) ("sqrt").
    spread
        Factor on t^2 in r^2. The published code has N there in super-resolution, by a misplaced power; elsewhere 1.
    """
    sensible = steps >= 1 and 0 < start < 1
    require(sensible, f"ot_ode: needs steps >= 1 and start in (0, 1), got {steps} and {start}")
    require(schedule in ("constant", "sqrt"), f'ot_ode: schedule must be "constant" or "sqrt", got {schedule!r}')
    like = begin(prior, op, y, sigma)
    require(sigma > 0, "ot_ode: sigma, the noise level of y, must be positive")
    x = start * like + (1 - start) * noise_source(like, generator)()

    def step(x: Tensor, t: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            v = at_time(prior, x, t)
            x_1 = (x + (1 - t) * v).detach()
            r2 = (1 - t) ** 2 / ((1 - t) ** 2 + spread * t**2)
            u = (data_consistency(op, x_1, y, (sigma**2 / r2).expand(len(x))) - x_1) / r2
            (Ju,) = torch.autograd.grad(v, x, u)
        gamma = (t / (t**2 + (1 - t) ** 2)).sqrt() if schedule == "sqrt" else 1.0
        return (x + (v + (1 - t) / t * gamma * (u + (1 - t) * Ju)) / steps).detach()

    step = replayed(step, y.device, op)
    first = round(steps * start)
    for i in range(first, steps):
        x = step(x, x.new_tensor(i / steps)).clone()
        if callback is not None:
            callback(i + 1 - first, steps - first, x)
    return x


@torch.no_grad()
def flow_priors(
    prior: Prior,
    op: LinearOperator,
    y: Tensor,
    sigma: float,
    *,
    steps: int = 100,
    updates: int = 1,
    lr: float = 0.01,
    weight: float = 1000.0,
    generator: Generators = None,
    callback: Progress | None = None,
) -> Tensor:
    """Restore images (B, C, H, W) from `y`. From x = x_0 ~ N(0, I), at t_i = 0.001 + 0.999 i / N, with dt = 1 / N:

        `updates` steps of Adam, begun anew at every t, on x to lower
            weight |A(x + dt v(x, t)) - y_{t+dt}|^2 + dt tr J_v(x, t) - log p_t(x)
        x = x + dt v(x, t)

    where y_s = s y + (1 - s) A x_0 is what the measurements of the state at time s would be. The trace of the Jacobian
    is estimated with one random vector of signs. The gradient of -log p_t is x at the first time and
    (x - t v) / (1 - t) after it. `sigma` is checked, but plays no part.

    Network calls a step: updates x (one forward, one backward, one backward through both) + one forward.

    Parameters
    ----------
    steps, updates
        N and K of the method.
    lr, weight
        Adam's learning rate (eta), and the weight of the data (lambda).
    """
    counts = steps >= 1 and updates >= 1
    require(counts, f"flow_priors: steps and updates must be at least 1, got {steps} and {updates}")
    like = begin(prior, op, y, sigma)
    noise = noise_source(like, generator)
    x = x_0 = noise()
    y_0, dt = op.A(x_0), 1 / steps

    def gradient(x: Tensor, t: Tensor, first: Tensor, e: Tensor, y_next: Tensor) -> Tensor:
        """The gradient by x of what a step lowers; `e` (B, C, H, W) are signs: the trace is estimated as e'J_v e."""
        # Only the plain attention has second derivatives.
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False), sdpa_kernel(SDPBackend.MATH):
            x = x.detach().requires_grad_()
            v = at_time(prior, x, t)
            (transposed,) = torch.autograd.grad(v, x, e, create_graph=True)  # J_v' e
            residual = op.A(x + dt * v) - y_next
            loss = weight * (residual * residual.conj()).real.sum() + dt * (transposed * e).sum()
            (g,) = torch.autograd.grad(loss, x)
        x, v = x.detach(), v.detach()
        return g + torch.where(first, x, (x - t * v) / (1 - t))

    def step(x: Tensor, t: Tensor, first: Tensor, *signs: Tensor) -> Tensor:
        y_next = (t + dt) * y + (1 - t - dt) * y_0
        mean, square = torch.zeros_like(x), torch.zeros_like(x)
        for k, e in enumerate(signs, start=1):
            g = gradient(x, t, first, e, y_next)
            mean = MEAN_DECAY * mean + (1 - MEAN_DECAY) * g
            square = SQUARE_DECAY * square + (1 - SQUARE_DECAY) * g.square()
            size = (square / (1 - SQUARE_DECAY**k)).sqrt() + SMALLEST
            x = x - lr * mean / (1 - MEAN_DECAY**k) / size
        return x + dt * at_time(prior, x, t)

    step = replayed(step, y.device)
    for i in range(steps):
        t = torch.full((), FIRST_TIME + (1 - FIRST_TIME) * (i / steps), dtype=x.dtype, device=x.device)
        first = torch.full((), i == 0, device=x.device)
        x = step(x, t, first, *(noise().sign() for _ in range(updates)))
        if callback is not None:
            callback(i + 1, steps, x)
    return x.clone()
