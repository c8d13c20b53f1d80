"""Linear operators whose magnitudes a detector sees without a lens: the oversampled and the coded Fourier transform."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from firm._util.checks import require
from firm.operators.base import Operator, dimensions, shape


class _Isometry(Operator):
    """Base of operators with A'A = I, on real images."""

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The weighted average (A'y + rho z) / (1 + rho) with rho = 1/gamma."""
        return (gamma * self.A_adjoint(y) + z) / (gamma + 1)

    def known_norm(self, like: Tensor) -> Tensor:
        """The norm of an isometry is 1."""
        return torch.ones((), device="cpu")


class Oversampled(_Isometry):
    """A x = F x after zeros around the image: the orthonormal DFT of `factor` times the size, (B, C, sH, sW), complex.

    Twice the size is what makes an image follow from the magnitudes, but for its mirror image.
    """

    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        require(int(factor) == factor and factor >= 1, f"Oversampled: factor must be a whole number >= 1, got {factor}")
        self.factor = int(factor)

    def A(self, x: Tensor) -> Tensor:
        """Transform images (B, C, H, W)."""
        return torch.fft.fft2(x, s=(x.shape[-2] * self.factor, x.shape[-1] * self.factor), norm="ortho")

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Transform back, and cut off what lies around the image."""
        H, W = y.shape[-2] // self.factor, y.shape[-1] // self.factor
        return torch.fft.ifft2(y, norm="ortho").real[..., :H, :W]

    def extra_repr(self) -> str:
        """Show the factor."""
        return f"{self.factor}"


class Coded(_Isometry):
    """A x = (F P_1 x, ..., F P_L x) / sqrt(L): the DFT behind each of L plates that shift the phases of the light.

    Random plates make a random operator as fast as a Fourier transform; `random_phases` draws them.

    Parameters
    ----------
    phases
        Complex numbers of modulus 1, (L, H, W).
    """

    phases: Tensor

    def __init__(self, phases: Tensor) -> None:
        super().__init__()
        fits = phases.ndim == 3 and phases.is_complex()
        require(fits, f"Coded: phases must be complex, (L, H, W), got {phases.dtype} of {shape(phases)}")
        self.register_buffer("phases", phases)

    def A(self, x: Tensor) -> Tensor:
        """Measure images (B, C, H, W) behind every plate, (B, C, L, H, W)."""
        return torch.fft.fft2(self.phases * x[:, :, None], norm="ortho") / math.sqrt(len(self.phases))

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Transform back, undo the shifts, and take the mean of all plates."""
        back = self.phases.conj() * torch.fft.ifft2(y, norm="ortho")
        return back.real.sum(2) / math.sqrt(len(self.phases))

    def extra_repr(self) -> str:
        """Show the size of the plates."""
        return dimensions(self.phases)


def random_phases(shape: tuple[int, int], plates: int = 4, generator: Generator | None = None) -> Tensor:
    """Draw complex numbers of modulus 1 and uniform phase for `Coded`, (plates, H, W)."""
    return torch.polar(torch.ones(plates, *shape), 2 * math.pi * torch.rand(plates, *shape, generator=generator))
