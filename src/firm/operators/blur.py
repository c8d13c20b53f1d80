"""Deblurring: circular convolution by FFT."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from firm.operators.base import Operator
from firm.operators.checks import require_image, require_pattern, require_shape, shape


class Blur(Operator):
    """A x = kernel * x, a convolution with periodic boundaries, the same on every channel.

    The kernel's centre is at (h // 2, w // 2). A kernel larger than the image wraps around, as the mathematics says.

    Parameters
    ----------
    kernel
        (h, w), or one kernel per sample, (B, 1, h, w).
    check
        Look at the values of the kernel; off where a training loop draws its own.
    """

    kernel: Tensor

    def __init__(self, kernel: Tensor, *, check: bool = True) -> None:
        super().__init__()
        if check:
            require_pattern(self, "kernel", kernel)
        if not (kernel.ndim == 2 or (kernel.ndim == 4 and kernel.shape[1] == 1)):
            raise ValueError(f"Blur: kernel must be (h, w) or one per sample, (B, 1, h, w), got {shape(kernel)}")
        self.register_buffer("kernel", kernel.to(torch.promote_types(kernel.dtype, torch.float32), copy=True))

    def A(self, x: Tensor) -> Tensor:
        """Blur."""
        return self._inverse(self._transfer(x) * torch.fft.rfft2(x), x)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Blur with the flipped kernel."""
        return self._inverse(self._transfer(y).conj() * torch.fft.rfft2(y), y)

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Wiener-like division in the Fourier domain (deblurring_update); rho = 1/gamma."""
        require_shape(self, "y", y, shape(z))
        transfer = self._transfer(z)
        spectrum = gamma * transfer.conj() * torch.fft.rfft2(y) + torch.fft.rfft2(z)
        return self._inverse(spectrum / (gamma * transfer.abs().square() + 1), z)

    def _transfer(self, x: Tensor) -> Tensor:
        """Fourier coefficients Lambda of the kernel at the size of `x`, (..., H, W // 2 + 1)."""
        require_image(self, x)
        if self.kernel.ndim == 4 and len(self.kernel) not in (1, len(x)):
            raise ValueError(f"Blur: {len(self.kernel)} kernels {shape(self.kernel)} for images {shape(x)}")
        (H, W), (h, w) = x.shape[-2:], self.kernel.shape[-2:]
        kernel = F.pad(self.kernel.to(x.dtype), (0, -w % W, 0, -h % H))  # to multiples of W and H, then fold
        kernel = kernel.unflatten(-1, (-1, W)).unflatten(-3, (-1, H)).sum((-4, -2))
        return torch.fft.rfft2(kernel.roll((-(h // 2), -(w // 2)), (-2, -1)))

    @staticmethod
    def _inverse(spectrum: Tensor, x: Tensor) -> Tensor:
        return torch.fft.irfft2(spectrum, s=(x.shape[-2], x.shape[-1]))

    def extra_repr(self) -> str:
        """Show the kernel's shape."""
        return "x".join(map(str, self.kernel.shape))
