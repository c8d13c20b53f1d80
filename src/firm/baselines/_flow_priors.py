"""Flow-Priors: a short ascent of the posterior at every time of the flow (Zhang et al., 2024; "ICTM")."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from firm._prepare import Generators
from firm._util.checks import require
from firm.acceleration.graphs import replayed
from firm.baselines._common import Prior, Progress, at_time, begin, noise_source
from firm.operators.base import LinearOperator

FIRST_TIME = 1e-3
MEAN_DECAY, SQUARE_DECAY, SMALLEST = 0.9, 0.999, 1e-8  # Adam's


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
