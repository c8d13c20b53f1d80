"""Clipping: a sensor that saturates, or whose black is cut off (high dynamic range)."""

from __future__ import annotations

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.gauss_newton import NonlinearOperator


class Clipping(NonlinearOperator):
    """A(x) = x clamped to [low, high]: what is brighter or darker is known to be so, and no more.

    Parameters
    ----------
    low, high
        The limits: numbers, or one per sample, (B,).
    check
        Look at the values of the limits; off where a training loop draws its own.
    """

    low: Tensor
    high: Tensor

    def __init__(self, low: float | Tensor = -1.0, high: float | Tensor = 1.0, *, check: bool = True) -> None:
        super().__init__()
        for key, value in (("low", low), ("high", high)):
            limit = torch.as_tensor(value, dtype=torch.get_default_dtype() if isinstance(value, float | int) else None)
            self.register_buffer(key, limit.reshape(-1, 1, 1, 1) if limit.ndim else limit)
        if check:  # which reads from the device, as the message does
            finite = self.low.isfinite().all() and self.high.isfinite().all()
            fits = bool((self.low < self.high).all() and finite)
            require(fits, f"Clipping: low must be less than high, and both finite, got {low} and {high}")

    def A(self, x: Tensor) -> Tensor:
        """Clamp images (B, C, H, W)."""
        return torch.minimum(torch.maximum(x, self.low.to(x.dtype)), self.high.to(x.dtype))

    def guess(self, y: Tensor) -> Tensor:
        """Take the measurements themselves."""
        return y

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The exact minimum, in each pixel the best of three: within the limits, above them, below them.

        Within: (y + rho z) / (1 + rho), at most `high` and at least `low`; rho = 1/gamma. Beyond a limit A(x) stays
        what it is: z itself, or the limit where z does not lie there. A saturated pixel, y = high, thus keeps any z
        above.
        """
        low, high = self.low.to(z.dtype), self.high.to(z.dtype)
        best = self.A((gamma * y + z) / (gamma + 1))
        least = gamma * (best - y).square() + (best - z).square()
        for x, limit in ((torch.maximum(z, high), high), (torch.minimum(z, low), low)):
            value = gamma * (limit - y).square() + (x - z).square()
            best, least = torch.where(value < least, x, best), torch.minimum(value, least)
        return best

    def extra_repr(self) -> str:
        """Show the limits."""
        alone = self.low.ndim == self.high.ndim == 0
        return f"{float(self.low):g}, {float(self.high):g}" if alone else "one a sample"
