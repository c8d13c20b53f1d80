"""Masks of pixels: inpainting, and denoising, where all of them are seen."""

from __future__ import annotations

import torch
from torch import Tensor

from firm.operators.base import Operator, checked_pattern, dimensions, largest


class Identity(Operator):
    """A = I, for arrays of any shape (B, ...): denoising, y = x + noise."""

    def A(self, x: Tensor) -> Tensor:
        """Return the images as they are."""
        return x

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Return the measurements as they are."""
        return y

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The weighted average (y + rho z) / (1 + rho) with rho = 1/gamma (equation (81), Appendix B.4)."""
        return (gamma * y + z) / (gamma + 1)

    def diagonal(self, y: Tensor) -> Tensor:
        """A A' = I."""
        return y.new_ones((), dtype=y.real.dtype)

    def known_norm(self, like: Tensor) -> Tensor:
        """The norm of the identity is 1."""
        return torch.ones((), device="cpu")


class Mask(Operator):
    """A x = m * x with a binary or weighted mask; the measurement has the size of the image.

    Parameters
    ----------
    mask
        1 = seen, 0 = missing, or any real weight. For images (B, C, H, W): (H, W) or (C, H, W) for one mask,
        (B, 1, H, W) or (B, C, H, W) for one per sample. For vectors (B, n): (n,).
    check
        Look at the values of the mask; off where a training loop draws its own.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, *, check: bool = True) -> None:
        super().__init__()
        self.register_buffer("mask", checked_pattern(self, "mask", mask, check))

    def A(self, x: Tensor) -> Tensor:
        """Multiply images (B, C, H, W) by the mask."""
        return self.mask * x

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Multiply by the mask (A is symmetric)."""
        return self.mask * y

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Elementwise (m y + rho z) / (m^2 + rho) with rho = 1/gamma (equation (82), Appendix B.4)."""
        share = 1 / (gamma * self.mask.square() + 1)  # of z; small where one mask serves all channels
        return torch.addcmul(gamma * self.mask * share * y, share.to(z.dtype), z)

    def diagonal(self, y: Tensor) -> Tensor:
        """A A' = diag(m^2)."""
        return self.mask.square()

    def known_norm(self, like: Tensor) -> Tensor:
        """The norm is the largest weight."""
        return largest(self.mask.abs())

    def extra_repr(self) -> str:
        """Show the mask's shape."""
        return dimensions(self.mask)
