"""OT-ODE: the flow's velocity, guided by the likelihood of the measurements (Pokle et al., 2024)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Prior, Progress, at_time, begin, noise_source
from firm.operators.base import LinearOperator, data_consistency


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
