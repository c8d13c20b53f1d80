"""What a flow's velocity says of a noisy image, by a change of variables."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def denoise(velocity: Callable[[Tensor, Tensor], Tensor], x: Tensor, sigma: float | Tensor) -> Tensor:
    """D(x, sigma) = x_t + (1 - t) v(x_t, t) with t = 1 / (1 + sigma) and x_t = t x; `sigma` is a number or (B,).

    For x = x_1 + sigma n this x_t is the flow's state, t x_1 + (1 - t) n, because t sigma = 1 - t.
    """
    t = 1 / (1 + torch.as_tensor(sigma, dtype=x.dtype, device=x.device).expand(len(x)))
    s = t.reshape(-1, *[1] * (x.ndim - 1))
    return s * x + (1 - s) * velocity(s * x, t)
