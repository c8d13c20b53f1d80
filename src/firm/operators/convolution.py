"""Volumes through a microscope: convolution with its measured point-spread function in three dimensions."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from firm._util.checks import require
from firm.operators.base import Operator, checked_pattern, dimensions, shape

AXES = (-3, -2, -1)


class Convolution(Operator):
    """A x = kernel * x over depth, height and width: the blur of a microscope in a volume.

    A volume is an image whose channels are its slices, (B, D, H, W): `firm.restore` then calls the network on one slice
    after the other, and solves with all of them. (A color model takes a volume of three slices for a color picture.)
    Volumes (B, 1, D, H, W) are convolved as well.

    The kernel's center is at (d // 2, h // 2, w // 2). With ``boundary="circular"`` the surroundings are the volume
    itself, periodically, and the data-consistency step is a division in the Fourier domain. With "valid" only voxels
    are measured whose whole neighborhood lies in the volume: (D - d + 1, H - h + 1, W - w + 1) of them. What lies
    outside is unknown, and conjugate gradients solve.

    Parameters
    ----------
    kernel
        The point-spread function, (d, h, w).
    boundary
        "circular" or "valid".
    """

    kernel: Tensor

    def __init__(self, kernel: Tensor, *, boundary: Literal["circular", "valid"] = "circular") -> None:
        super().__init__()
        known = boundary in ("circular", "valid")
        require(known, f'Convolution: boundary must be "circular" or "valid", got {boundary!r}')
        kernel = checked_pattern(self, "kernel", kernel, check=True)
        require(kernel.ndim == 3, f"Convolution: kernel must be (d, h, w), got {shape(kernel)}")
        self.boundary = boundary
        self.register_buffer("kernel", kernel)

    def A(self, x: Tensor) -> Tensor:
        """Convolve volumes (B, ..., D, H, W); with "valid", cut off the rim that depends on what lies outside."""
        fits = x.ndim >= 4 and all(n >= k for n, k in zip(x.shape[-3:], self.kernel.shape, strict=True))
        whole = f"{self}: volumes (B, D, H, W) no smaller than the kernel are convolved, got {shape(x)}"
        require(fits, whole)
        blurred = self._filtered(x, self._transfer(x))
        if self.boundary == "circular":
            return blurred
        inside = tuple(slice(k - 1 - k // 2, n - k // 2) for n, k in zip(x.shape[-3:], self.kernel.shape, strict=True))
        return blurred[..., inside[0], inside[1], inside[2]]

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Convolve with the flipped kernel, after zeros around a valid measurement."""
        if self.boundary == "valid":
            y = F.pad(y, [n for k in reversed(self.kernel.shape) for n in (k - 1 - k // 2, k // 2)])
        return self._filtered(y, self._transfer(y).conj())

    @property
    def closed_form(self) -> bool:
        """True with circular boundaries: the Fourier transform then makes A'A diagonal."""
        return self.boundary == "circular"

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Divide in the Fourier domain, as for pictures (equation (83)), with circular boundaries; rho = 1/gamma."""
        if self.boundary == "valid":
            return super().prox_l2(z, y, gamma)
        transfer = self._transfer(z)
        spectrum = gamma * transfer.conj() * torch.fft.rfftn(y, dim=AXES) + torch.fft.rfftn(z, dim=AXES)
        return torch.fft.irfftn(spectrum / (gamma * transfer.abs().square() + 1), s=z.shape[-3:], dim=AXES)

    def known_norm(self, like: Tensor) -> Tensor | None:
        """With circular boundaries the norm is the largest of |Lambda|; else it is not known."""
        return self._transfer(like).abs().max() if self.closed_form else None

    def _transfer(self, x: Tensor) -> Tensor:
        """Return the Fourier coefficients Lambda of the kernel at the size of `x`, (D, H, W // 2 + 1)."""
        size = x.shape[-3:]

        def compute() -> Tensor:
            padded = F.pad(
                self.kernel.to(x.dtype),
                [end for n, k in zip(reversed(size), reversed(self.kernel.shape), strict=True) for end in (0, n - k)],
            )
            around = [-(k // 2) for k in self.kernel.shape]
            return torch.fft.rfftn(padded.roll(around, AXES), dim=AXES)

        return self.computed_once("transfer", (*size, x.dtype), self.kernel, compute)

    def _filtered(self, x: Tensor, transfer: Tensor) -> Tensor:
        return torch.fft.irfftn(transfer * torch.fft.rfftn(x, dim=AXES), s=x.shape[-3:], dim=AXES)

    def extra_repr(self) -> str:
        """Show the kernel's shape."""
        return dimensions(self.kernel) + (", valid" if self.boundary == "valid" else "")
