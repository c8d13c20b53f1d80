"""Subsampled Fourier measurements of real images (the compressed-sensing experiment, Appendix E)."""

from __future__ import annotations

import torch
from torch import Tensor

from firm.operators.base import Operator
from firm.operators.checks import require_broadcast, require_image, require_pattern, require_shape, shape


class Fourier(Operator):
    """A x = m * F x with the orthonormal 2-D DFT, channel by channel; the measurement is complex, (B, C, H, W).

    Images are real, so A'y = Re F^H(m y). The mask need not be conjugate-symmetric.

    Parameters
    ----------
    mask
        Binary or weighted, in the order of ``torch.fft.fft2`` (zero frequency first; pass a centred mask through
        ``torch.fft.ifftshift``): (H, W), or one per sample, (B, 1, H, W).
    check
        Look at the values of the mask; off where a training loop draws its own.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, *, check: bool = True) -> None:
        super().__init__()
        if check:
            require_pattern(self, "mask", mask)
        if mask.ndim < 2:
            raise ValueError(f"Fourier: mask must be (H, W) or one per sample, (B, 1, H, W), got {shape(mask)}")
        self.register_buffer("mask", mask.to(torch.promote_types(mask.dtype, torch.float32), copy=True))

    def A(self, x: Tensor) -> Tensor:
        """Sample the spectrum."""
        self._require_fit(x)
        return self.mask * torch.fft.fft2(x, norm="ortho")

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The real part of the zero-filled inverse transform."""
        self._require_fit(y.real)
        return torch.fft.ifft2(self.mask * y, norm="ortho").real

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Divide by w + rho in the Fourier domain, with w(k) = (m(k)^2 + m(-k)^2) / 2 and rho = 1/gamma.

        For real images A'A is the filter w. Where the mask is symmetric, w = m^2 and this is the paper's update
        (cs_update); where it is not, the paper's formula is only approximate and this one exact.
        """
        require_shape(self, "y", y, shape(z))
        power = self.mask.square()
        reflected = power.flip(-2, -1).roll((1, 1), (-2, -1))  # index -k
        w = ((power + reflected) / 2)[..., : z.shape[-1] // 2 + 1]
        b = gamma * self.A_adjoint(y) + z
        return torch.fft.irfft2(torch.fft.rfft2(b) / (gamma * w + 1), s=(z.shape[-2], z.shape[-1]))

    def _require_fit(self, x: Tensor) -> None:
        require_image(self, x)
        require_broadcast(self, self.mask, x)

    def extra_repr(self) -> str:
        """Show the mask's shape."""
        return "x".join(map(str, self.mask.shape))
