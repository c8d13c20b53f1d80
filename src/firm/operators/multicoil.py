"""Magnetic resonance imaging with several receiver coils (SENSE), Cartesian."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.base import Operator, checked_pattern, require_tensor, shape

SAME = 1e-5  # relative difference of values that count as equal: maps and weights are float32


class MultiCoil(Operator):
    """A x = (m * F (s_1 x), ..., m * F (s_C x)) with the orthonormal 2-D DFT F: complex (B, 1, H, W) to (B, C, H, W).

    Coil c sees the image x through its sensitivity map s_c, and all coils are sampled at the places m of k-space. The
    images are complex; `as_real` makes an operator of it for networks, which take real ones.

    A'A = sum_c s_c^* F^H m^2 F s_c. Where it is known to be simple the solve has a closed form: with all of k-space
    measured A'A is the image sum_c |s_c|^2 m^2, and a single coil whose map has magnitude 1 only turns phases. All else
    is solved by conjugate gradients. A mask of whole lines that is given as (1, W) or (H, 1) needs transforms along
    one axis only in them, which halves their time.

    Parameters
    ----------
    mask
        Binary or weighted, in the order of ``torch.fft.fft2`` (zero frequency first; pass a centered mask through
        ``torch.fft.ifftshift``): (H, W), (1, W) or (H, 1), or one per sample, (B, 1, H, W).
    maps
        Complex sensitivity maps, (C, H, W), or those of every sample, (B, C, H, W). `firm.operators.coils` estimates
        them. Their sum of squares should be about 1 where there is something to see, for a norm of about 1.
    check
        Look at the values of mask and maps; off where a training loop draws its own. Closed forms are found only when
        on.
    """

    mask: Tensor
    parts: Tensor  # real and imaginary parts of the maps, (..., 2): `Module.double` would leave a complex buffer alone

    def __init__(self, mask: Tensor, maps: Tensor, *, check: bool = True) -> None:
        super().__init__()
        mask = checked_pattern(self, "mask", mask, check)
        require_tensor("MultiCoil: maps", maps)
        fits = maps.is_complex() and maps.ndim in (3, 4)
        wanted = "MultiCoil: maps must be complex, (C, H, W), or those of every sample, (B, C, H, W)"
        require(fits, f"{wanted}; got {maps.dtype} of {shape(maps)}")
        sides = [(m, n) for m, n in zip(mask.shape[-2:], maps.shape[-2:], strict=False) if m not in (1, n)]
        batches = {len(v) for v in (mask, maps) if v.ndim == 4} - {1}
        single = mask.ndim == 2 or (mask.ndim == 4 and mask.shape[1] == 1)
        require(
            single and not sides and len(batches) < 2,
            f"MultiCoil: the mask of shape {shape(mask)} does not fit the maps of shape {shape(maps)}: it must be "
            "(H, W), (1, W) or (H, 1), or one per sample, (B, 1, H, W)",
        )
        if check:
            seen = maps.isfinite().all() and maps.abs().sum((-3, -2, -1)).all()
            require(seen, f"MultiCoil: maps of shape {shape(maps)} must be finite and not zero throughout")
        self.register_buffer("mask", mask)
        parts = torch.view_as_real(maps.resolve_conj()).to(torch.promote_types(maps.real.dtype, torch.float32))
        self.register_buffer("parts", parts.clone())
        self.simple = _simple(mask, maps) if check else None

    @property
    def maps(self) -> Tensor:
        """The sensitivity maps s, complex: (C, H, W) or (B, C, H, W)."""
        return torch.view_as_complex(self.parts)

    def A(self, x: Tensor) -> Tensor:
        """Measure complex images (B, 1, H, W) with every coil, (B, C, H, W)."""
        if not x.is_complex() or x.ndim != 4 or x.shape[1] != 1 or x.shape[2:] != self.parts.shape[-3:-1]:
            raise ValueError(f"{self} takes {self._images()}, got {x.dtype} of shape {shape(x)}")
        return self.mask * torch.fft.fft2(self.maps * x, norm="ortho")

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Transform back, undo the phases of the coils, and sum over them: (B, C, H, W) to (B, 1, H, W)."""
        return (self.maps.conj() * torch.fft.ifft2(self.mask * y, norm="ortho")).sum(1, keepdim=True)

    def normal(self, x: Tensor) -> Tensor:
        """A'A x, with transforms along those axes only in which the mask varies; along the others they cancel."""
        axes = [axis for axis in (-2, -1) if self.mask.shape[axis] > 1]
        y = self.mask.square() * torch.fft.fftn(self.maps * x, dim=axes, norm="ortho")
        return (self.maps.conj() * torch.fft.ifftn(y, dim=axes, norm="ortho")).sum(1, keepdim=True)

    @property
    def closed_form(self) -> bool:
        """True with all of k-space measured, and with a single coil of magnitude 1."""
        return self.simple is not None

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """Solve (A'A + rho) x = A'y + rho z with rho = 1/gamma: b / (sum |s|^2 m^2 + rho) where k-space is full.

        With one coil s of magnitude 1 it is x = s^* F^H[F(s b) / (m^2 + rho)].
        """
        if self.simple is None:
            return super().prox_l2(z, y, gamma)
        b, m2 = gamma * self.A_adjoint(y) + z, self.mask.square()
        if self.simple == "full":
            return b / (gamma * self._power() * m2[..., :1, :1] + 1)
        spectrum = torch.fft.fft2(self.maps * b, norm="ortho") / (gamma * m2 + 1)
        return self.maps.conj() * torch.fft.ifft2(spectrum, norm="ortho")

    def diagonal(self, y: Tensor) -> Tensor | None:
        """With one coil of magnitude 1, A A' = m^2."""
        return self.mask.square().expand(len(y), *y.shape[1:]) if self.simple == "phase" else None

    def known_norm(self, like: Tensor) -> Tensor | None:
        """The largest m, times the largest root of sum |s|^2; known where the solve has a closed form."""
        if self.simple is None:
            return None
        size = self._power().amax((1, 2, 3)).sqrt() if self.simple == "full" else 1
        return self.mask.reshape(-1, self.mask.shape[-2:].numel()).abs().amax(1) * size

    def _power(self) -> Tensor:
        """sum_c |s_c|^2, (1 or B, 1, H, W)."""
        power = self.parts.square().sum((-1, -4)).unsqueeze(-3)
        return power if power.ndim == 4 else power[None]

    def _images(self) -> str:
        H, W = self.parts.shape[-3:-1]
        return f"complex images (B, 1, {H}, {W})"

    def extra_repr(self) -> str:
        """Show the number of coils and the size."""
        *_, C, H, W, _ = self.parts.shape
        return f"{C} coils, {H}x{W}"


def _simple(mask: Tensor, maps: Tensor) -> Literal["full", "phase"] | None:
    """Tell where A'A is known to be simple: "full" k-space of one weight per sample, or one coil of magnitude 1."""
    m = mask.reshape(-1, mask.shape[-2:].numel())
    if bool((m.abs().amin(1) >= (1 - SAME) * m.abs().amax(1)).all()):
        return "full"
    unit = maps.shape[-3] == 1 and bool(((maps.abs() - 1).abs() < SAME).all())
    return "phase" if unit else None
