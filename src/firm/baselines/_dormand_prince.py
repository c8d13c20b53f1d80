"""The flow integrated with the adaptive rule of Dormand and Prince (order 5), with steps of its own for every image."""

from __future__ import annotations

import torch
from torch import Tensor

from firm.acceleration.graphs import replayed
from firm.baselines._common import Prior

# The seven stages: where each one stands within the step, and how it weighs the slopes of the stages before it. The
# last one stands at the end of the step, where the next step begins: seven stages cost six network calls.
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
def integrate(prior: Prior, x: Tensor, start: float, end: float, tolerance: float = 1e-5) -> Tensor:
    """The flow dx/dt = v(x, t) from `x` (B, C, H, W) at time `start` to time `end`, which may lie before it.

    A step is accepted where the root mean square of error / (tolerance + tolerance |x|) over the image is at most 1.
    """

    @torch.no_grad()
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
