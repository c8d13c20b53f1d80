"""Deblurring: convolution by FFT, with periodic boundaries or none."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from firm._util.checks import require
from firm.operators.base import Operator, checked_pattern, dimensions, largest, shape


class Blur(Operator):
    """A x = kernel * x, a convolution with periodic boundaries, the same on every channel.

    The kernel's center is at (h // 2, w // 2). A kernel larger than the image wraps around, as the mathematics says.

    With ``boundary="valid"``, as in a real photograph, only those pixels are measured whose whole neighborhood lies
    in the image: (H - h + 1, W - w + 1) of them, cut out of the periodic convolution. What lies outside is unknown.
    This has no closed form, so that conjugate gradients solve with it. It is the same class because the two share
    everything else.

    Parameters
    ----------
    kernel
        (h, w), or one kernel per sample, (B, 1, h, w).
    boundary
        "circular" or "valid".
    check
        Look at the values of the kernel; off where a training loop draws its own.
    """

    kernel: Tensor

    def __init__(
        self, kernel: Tensor, *, boundary: Literal["circular", "valid"] = "circular", check: bool = True
    ) -> None:
        super().__init__()
        known = boundary in ("circular", "valid")
        require(known, f'Blur: boundary must be "circular" or "valid", got {boundary!r}')
        self.boundary = boundary
        self.register_buffer("kernel", checked_kernel(self, kernel, check))

    def A(self, x: Tensor) -> Tensor:
        """Blur images (B, C, H, W); with "valid", cut off the rim that depends on what lies outside."""
        blurred = filtered(x, self.transfer(x))
        if self.boundary == "circular":
            return blurred
        (H, W), (h, w) = x.shape[-2:], self.kernel.shape[-2:]
        if h > H or w > W:
            raise ValueError(f"{self}: images of shape {shape(x)} are smaller than the kernel, {h}x{w}")
        return blurred[..., h - 1 - h // 2 : H - h // 2, w - 1 - w // 2 : W - w // 2]

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Blur with the flipped kernel, after zeros around a valid measurement."""
        if self.boundary == "valid":
            h, w = self.kernel.shape[-2:]
            y = F.pad(y, (w - 1 - w // 2, w // 2, h - 1 - h // 2, h // 2))
        return filtered(y, self.transfer(y).conj())

    @property
    def closed_form(self) -> bool:
        """True with circular boundaries: the Fourier transform then makes A'A diagonal."""
        return self.boundary == "circular"

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Wiener-like division in the Fourier domain (equation (83)), for circular boundaries; rho = 1/gamma."""
        if self.boundary == "valid":
            return super().prox_l2(z, y, gamma)
        transfer = self.transfer(z)
        spectrum = gamma * transfer.conj() * torch.fft.rfft2(y) + torch.fft.rfft2(z)
        return torch.fft.irfft2(spectrum / (gamma * transfer.abs().square() + 1), s=(z.shape[-2], z.shape[-1]))

    def known_norm(self, like: Tensor) -> Tensor | None:
        """With circular boundaries the norm is the largest of |Lambda|; else it is not known."""
        return largest(self.transfer(like).abs()) if self.closed_form else None

    def transfer(self, x: Tensor) -> Tensor:
        """Return the Fourier coefficients Lambda of the kernel at the size of the images `x`, (..., H, W // 2 + 1)."""
        return transfer(self, self.kernel, x)

    def extra_repr(self) -> str:
        """Show the kernel's shape."""
        return dimensions(self.kernel) + (", valid" if self.boundary == "valid" else "")


def checked_kernel(op: Operator, kernel: Tensor, check: bool) -> Tensor:
    """Return a kernel in float32 or better, after a look at its shape and, with `check`, at its values."""
    kernel = checked_pattern(op, "kernel", kernel, check)
    fits = kernel.ndim == 2 or (kernel.ndim == 4 and kernel.shape[1] == 1)
    kind = type(op).__name__
    require(fits, f"{kind}: kernel must be (h, w) or one per sample, (B, 1, h, w), got {shape(kernel)}")
    return kernel


def transfer(op: Operator, kernel: Tensor, x: Tensor) -> Tensor:
    """Return the Fourier coefficients Lambda of `kernel` at the size of `x`, (..., H, W // 2 + 1); `op` keeps them."""
    (H, W), (h, w) = x.shape[-2:], kernel.shape[-2:]

    def compute() -> Tensor:
        padded = F.pad(kernel.to(x.dtype), (0, -w % W, 0, -h % H))  # to multiples of W and H, then fold
        folded = padded.unflatten(-1, (-1, W)).unflatten(-3, (-1, H)).sum((-4, -2))
        return torch.fft.rfft2(folded.roll((-(h // 2), -(w // 2)), (-2, -1)))

    return op.computed_once("transfer", (H, W, x.dtype), kernel, compute)


def filtered(x: Tensor, transfer: Tensor) -> Tensor:
    """Return the circular convolution of `x` with the kernel that has these Fourier coefficients."""
    return torch.fft.irfft2(transfer * torch.fft.rfft2(x), s=(x.shape[-2], x.shape[-1]))
