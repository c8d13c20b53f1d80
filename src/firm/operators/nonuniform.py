"""Magnetic resonance imaging along any trajectory: radial lines, spirals, what a scanner was moved through."""

from __future__ import annotations

import importlib
import math
import warnings
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from firm._util.checks import require
from firm.operators.base import Operator, require_tensor, shape

OVERSAMPLING = 2**14  # entries of its tables for each point of the grid: an error of 5e-5; its own 2**10 make 7e-4


class NonUniformFourier(Operator):
    """A x = (E s_1 x, ..., E s_C x) with E_mn = exp(-2 pi i (k_m1 n_1 / H + k_m2 n_2 / W)) / sqrt(H W).

    Complex images (B, 1, H, W) are measured by C coils at M places k_m of k-space, (B, C, M); pixels are counted from
    the middle, n = -(H // 2), ..., so that a Cartesian trajectory gives the orthonormal DFT of a centered image.
    `as_real` makes an operator on real images of it. E is the non-uniform fast Fourier transform of torchkbnufft, which
    runs where torch does and whose adjoint is one to rounding: ``pip install 'firm[mri]'``. Conjugate gradients solve;
    A'A is a convolution with zeros around the image (Toeplitz), which is found once and costs two transforms of twice
    the size.

    Trajectories that meet the middle often have a large norm: `firm.restore` scales.

    Parameters
    ----------
    trajectory
        The places k, (M, 2) or one set for each sample, (B, M, 2): along H, then W, in whole periods of the field of
        view, from -H/2 to H/2 and -W/2 to W/2. Places more than 1 apart leave aliases.
    maps
        Complex sensitivity maps, (C, H, W) or (B, C, H, W), as in `MultiCoil`.
    density
        Weights d of the samples, (M,) or (B, M): the area of k-space that each stands for, for a radial trajectory
        about |k|. They do not belong to A, and neither does the solve use them, since the noise is the same in all
        samples: they make `gridded` a good first look.
    """

    trajectory: Tensor
    parts: Tensor
    density: Tensor | None

    def __init__(self, trajectory: Tensor, maps: Tensor, density: Tensor | None = None) -> None:
        super().__init__()
        library()
        for what, value in (("trajectory", trajectory), ("maps", maps)):
            require_tensor(f"NonUniformFourier: {what}", value)
            require(value.isfinite().all(), f"NonUniformFourier: {what} must be finite")
        fits = maps.is_complex() and maps.ndim in (3, 4) and trajectory.ndim in (2, 3) and trajectory.shape[-1] == 2
        require(
            fits and trajectory.is_floating_point() and trajectory.numel(),
            "NonUniformFourier: the trajectory must be real, (M, 2) or (B, M, 2), and the maps complex, (C, H, W) or "
            f"(B, C, H, W); got {trajectory.dtype} of {shape(trajectory)} and {maps.dtype} of {shape(maps)}",
        )
        sides = trajectory.new_tensor(maps.shape[-2:])
        inside = bool((trajectory.abs() <= sides / 2 * (1 + 1e-4)).all())
        H, W = maps.shape[-2:]
        require(
            inside,
            f"NonUniformFourier: the trajectory must lie within -{H / 2:g} to {H / 2:g} and -{W / 2:g} to {W / 2:g}, "
            f"half the sides of the image; it reaches {float(trajectory.abs().max()):.3g}",
        )
        self.register_buffer("trajectory", trajectory.float() if trajectory.itemsize < 4 else trajectory.clone())
        self.register_buffer("parts", torch.view_as_real(maps.resolve_conj()).clone())
        if density is not None:
            positive = density.shape == trajectory.shape[:-1] and bool((density >= 0).all())
            require(positive, f"NonUniformFourier: density must be at least 0, {shape(trajectory)[:-1]}")
        self.register_buffer("density", density)

    @property
    def maps(self) -> Tensor:
        """The sensitivity maps s, complex: (C, H, W) or (B, C, H, W)."""
        return torch.view_as_complex(self.parts)

    def A(self, x: Tensor) -> Tensor:
        """Measure complex images (B, 1, H, W) with every coil, (B, C, M)."""
        H, W = self.parts.shape[-3:-1]
        if not x.is_complex() or x.ndim != 4 or x.shape[1] != 1 or x.shape[2:] != (H, W):
            raise ValueError(f"{self} takes complex images (B, 1, {H}, {W}), got {x.dtype} of shape {shape(x)}")
        forward, _ = _transforms((H, W), x.dtype, x.device)
        y: Tensor = forward(self.maps * x, self._radians(x))
        return y / math.sqrt(H * W)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Bring the samples to the image and sum over the coils: (B, C, M) to (B, 1, H, W)."""
        H, W = self.parts.shape[-3:-1]
        _, adjoint = _transforms((H, W), y.dtype, y.device)
        coils: Tensor = adjoint(y.contiguous(), self._radians(y)) / math.sqrt(H * W)
        return (self.maps.conj() * coils).sum(1, keepdim=True)

    def normal(self, x: Tensor) -> Tensor:
        """A'A x by transforms of twice the size, with the Toeplitz kernel of E'E; equal to 1e-4."""
        H, W = x.shape[-2:]
        kernel = self.computed_once("kernel", (H, W, x.dtype), self.trajectory, lambda: self._kernel(x))
        y = torch.fft.fft2(self.maps * x, s=(2 * H, 2 * W)) * kernel
        return (self.maps.conj() * torch.fft.ifft2(y)[..., :H, :W]).sum(1, keepdim=True)

    def gridded(self, y: Tensor) -> Tensor:
        """Return A'(d y), the image as gridding makes it, (B, 1, H, W): a first look, in the units of the image.

        Without `density` it is A'y. It is scaled so that its measurements are as large as `y`.
        """
        x = self.A_adjoint(y if self.density is None else self.density.unsqueeze(-2) * y)
        Ax = self.A(x)
        scale = (Ax.conj() * y).real.sum((1, 2)) / Ax.abs().square().sum((1, 2)).clamp(min=torch.finfo(y.dtype).tiny)
        return scale.reshape(-1, 1, 1, 1) * x

    def _radians(self, like: Tensor) -> Tensor:
        """The trajectory as torchkbnufft takes it: (2, M) or (B, 2, M), in radians for each pixel."""
        H, W = self.parts.shape[-3:-1]
        k = self.trajectory.to(like.real.dtype)
        return torch.stack([2 * math.pi / H * k[..., 0], 2 * math.pi / W * k[..., 1]], dim=-2)

    def _kernel(self, x: Tensor) -> Tensor:
        """The transform of E'E's point spread, sum_m exp(2 pi i k_m l) / (H W) at all shifts l from -H to H - 1."""
        H, W = x.shape[-2:]
        _, adjoint = _transforms((2 * H, 2 * W), x.dtype, x.device)
        k = self._radians(x)
        ones = torch.ones(len(k) if k.ndim == 3 else 1, 1, k.shape[-1], dtype=x.dtype, device=x.device)
        spread: Tensor = adjoint(ones, k) / (H * W)
        return torch.fft.fft2(torch.fft.ifftshift(spread, dim=(-2, -1)))

    def extra_repr(self) -> str:
        """Show the number of coils, samples, and the size."""
        *_, C, H, W, _ = self.parts.shape
        return f"{C} coils, {self.trajectory.shape[-2]} samples, {H}x{W}"


def library() -> Any:
    """Import torchkbnufft, or say how it is installed."""
    if find_spec("torchkbnufft") is None:
        raise ModuleNotFoundError("NonUniformFourier needs torchkbnufft: pip install 'firm[mri]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script, which it is decorated with, is deprecated
        return importlib.import_module("torchkbnufft")


@lru_cache(maxsize=8)
def _transforms(size: tuple[int, int], dtype: torch.dtype, device: torch.device) -> tuple[Any, Any]:
    """The transform and its adjoint, whose tables depend on no trajectory."""
    kind: dict[str, Any] = dict(im_size=size, table_oversamp=OVERSAMPLING, dtype=dtype, device=device)
    return library().KbNufft(**kind), library().KbNufftAdjoint(**kind)
