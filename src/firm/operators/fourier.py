"""Subsampled Fourier measurements (the compressed-sensing experiment, Appendix E), of real or complex images."""

from __future__ import annotations

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.base import Operator, checked_pattern, dimensions, largest, shape


class Fourier(Operator):
    """A x = m * F x with the orthonormal 2-D DFT, channel by channel; the measurement is complex, (B, C, H, W).

    Images are real, so A'y = Re F^H(m y). The mask need not be conjugate-symmetric. With ``complex_images=True`` they
    are complex, as in magnetic resonance imaging, and A'y = F^H(m y); a network that takes real images needs `as_real`.

    Parameters
    ----------
    mask
        Binary or weighted, in the order of ``torch.fft.fft2`` (zero frequency first; pass a centered mask through
        ``torch.fft.ifftshift``): (H, W), or one per sample, (B, 1, H, W).
    complex_images
        Whether images are complex.
    check
        Look at the values of the mask; off where a training loop draws its own.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, complex_images: bool = False, *, check: bool = True) -> None:
        super().__init__()
        mask = checked_pattern(self, "mask", mask, check)
        require(mask.ndim > 1, f"Fourier: mask must be (H, W) or one per sample, (B, 1, H, W), got {shape(mask)}")
        self.complex_images = complex_images
        self.register_buffer("mask", mask)

    def A(self, x: Tensor) -> Tensor:
        """Sample the spectrum of images (B, C, H, W)."""
        if x.is_complex() != self.complex_images:
            kind = "complex" if self.complex_images else "real"
            raise ValueError(f"{self} takes {kind} images, got {x.dtype} of shape {shape(x)}")
        return self.mask * torch.fft.fft2(x, norm="ortho")

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The zero-filled inverse transform; its real part where images are real."""
        x = torch.fft.ifft2(self.mask * y, norm="ortho")
        return x if self.complex_images else x.real

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Divide by w + rho in the Fourier domain, with w(k) = (m(k)^2 + m(-k)^2) / 2 and rho = 1/gamma.

        For real images A'A is the filter w. Where the mask is symmetric, w = m^2 and this is the paper's update
        (equation (84)); where it is not, the paper's formula is only approximate and this one exact. For complex images
        w = m^2, whatever the mask: x = F^H[(gamma m y + F z) / (gamma m^2 + 1)].
        """
        if self.complex_images:
            spectrum = gamma * self.mask * y + torch.fft.fft2(z, norm="ortho")
            return torch.fft.ifft2(spectrum / (gamma * self.mask.square() + 1), norm="ortho")
        w = self._power()[..., : z.shape[-1] // 2 + 1]
        b = gamma * self.A_adjoint(y) + z
        return torch.fft.irfft2(torch.fft.rfft2(b) / (gamma * w + 1), s=(z.shape[-2], z.shape[-1]))

    def known_norm(self, like: Tensor) -> Tensor:
        """A'A is the filter m^2, for real images that of `_power`: the norm is the root of its largest entry."""
        return largest(self.mask.square() if self.complex_images else self._power()).sqrt()

    def _power(self) -> Tensor:
        """w(k) = (m(k)^2 + m(-k)^2) / 2, which is A'A on real images."""
        power = self.mask.square()
        return (power + power.flip(-2, -1).roll((1, 1), (-2, -1))) / 2

    def extra_repr(self) -> str:
        """Show the mask's shape."""
        return dimensions(self.mask) + (", complex_images=True" if self.complex_images else "")
