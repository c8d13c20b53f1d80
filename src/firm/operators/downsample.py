"""Super-resolution of pictures that were shrunk properly: an anti-aliasing filter, then a stride."""

from __future__ import annotations

import torch
from torch import Tensor

from firm.operators.base import Operator
from firm.operators.blur import checked_kernel, filtered, transfer
from firm.operators.checks import name, require_image, require_shape, shape
from firm.operators.patterns import resize_kernel


class Downsample(Operator):
    """A x = S(k * x): circular convolution with a filter, then every `factor`-th pixel; (H, W) to (H/s, W/s).

    Away from the rim "bicubic", "bilinear" and "box" are what ``PIL.Image.resize`` does (and MATLAB's imresize for
    "bicubic"): output pixel i is centered on the input pixels s i .. s i + s - 1. "box" is the mean of these.

    Parameters
    ----------
    factor
        The stride s >= 1. Both sides of an image must be multiples of it: only then the closed form is exact.
    filter
        A name for `resize_kernel`, or a kernel (h, w), centered at (h // 2, w // 2), or one per sample, (B, 1, h, w).
    check
        Look at the values of a kernel; off where a training loop draws its own.
    """

    kernel: Tensor

    def __init__(self, factor: int, filter: str | Tensor = "bicubic", *, check: bool = True) -> None:
        super().__init__()
        if int(factor) != factor or factor < 1:
            raise ValueError(f"Downsample: factor must be a whole number >= 1, got {factor}")
        self.factor = int(factor)
        self.filter = filter if isinstance(filter, str) else "x".join(map(str, filter.shape))
        kernel = resize_kernel(self.factor, filter) if isinstance(filter, str) else filter
        self.register_buffer("kernel", checked_kernel(self, kernel, check))

    def A(self, x: Tensor) -> Tensor:
        """Filter, then keep every `factor`-th row and column."""
        require_image(self, x)
        H, W = x.shape[-2:]
        h, w = H - H % self.factor, W - W % self.factor
        if (h, w) != (H, W):
            raise ValueError(
                f"{name(self)}: both sides of images {shape(x)} must be multiples of {self.factor}; "
                f"crop them to {h}x{w}, or pad them"
            )
        return self._keep(filtered(x, transfer(self, self.kernel, x)))

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Zeros between the values, then the flipped filter."""
        require_image(self, y)
        x = y.new_zeros(*y.shape[:2], y.shape[-2] * self.factor, y.shape[-1] * self.factor)
        self._keep(x).copy_(y)
        return filtered(x, transfer(self, self.kernel, x).conj())

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """x = z + A'(AA' + rho I)^-1 (y - A z), with rho = 1/gamma: (A'A + rho I)^-1 A' = A'(AA' + rho I)^-1.

        AA' is the circular convolution of the small image with the autocorrelation of the kernel at every
        `factor`-th shift. Its Fourier coefficients are the mean of |Lambda|^2 over the s^2 frequencies that alias.
        """
        Az = self.A(z)
        require_shape(self, "y", y, shape(Az))
        power = transfer(self, self.kernel, z).abs().square()
        autocorrelation = torch.fft.irfft2(power, s=(z.shape[-2], z.shape[-1]))
        folded = torch.fft.rfft2(self._keep(autocorrelation)).real.clamp(min=0)
        return z + self.A_adjoint(filtered(y - Az, gamma / (gamma * folded + 1)))

    def _keep(self, x: Tensor) -> Tensor:
        return x[..., :: self.factor, :: self.factor]

    def extra_repr(self) -> str:
        """Show the factor and the filter."""
        return f"{self.factor}, {self.filter}"
