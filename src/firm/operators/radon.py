"""Tomography: line integrals of an image along parallel rays, or along the rays of a fan."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from firm._util.checks import require
from firm.operators.base import Operator, require_tensor, shape
from firm.operators.tomography import Geometry, ray_lengths

NORM_ITERATIONS = 8  # of the power method, from an image of ones: the error is below 1e-6
LEAST_RHO = 0.01  # of the preconditioner, in units of |A|^2; less takes more iterations (experiments/ct)


class Radon(Operator):
    """A x are the integrals of images along rays, (B, C, H, W) to (B, C, views, bins): computed tomography.

    The lengths of all rays within the pixels (Joseph's method, see `firm.operators.tomography.ray_lengths`) are
    computed once and kept as a sparse matrix beside its transpose, so that the adjoint is the adjoint, to the bit of
    every length. 60 views of 512x512 pixels take 0.6 GB.

    Parameters
    ----------
    angles
        Of the views, in radians, (views,).
    image_size
        (H, W) of the images, or one number where they are square. What is measured lies within them.
    pixel
        Side of a pixel, in any unit of length, which all other lengths share.
    bins, spacing
        How many bins the detector has, and their distance from each other. By default a bin is as large as a pixel
        (as its shadow on the detector), and the bins cover the image.
    source, detector
        Distances of the source and the detector from the axis, for a fan beam. Without a source the rays are parallel.
    offset
        How far the center of the detector lies along it from the ray through the axis.
    curved
        Whether the detector is an arc around the source.
    seen
        Which views of every sample are measured, (B, views), 1 or 0: the others measure 0. None: all.
    """

    starts: Tensor
    columns: Tensor
    lengths: Tensor
    back_starts: Tensor
    back_columns: Tensor
    back_lengths: Tensor
    largest: Tensor
    seen: Tensor | None

    def __init__(
        self, angles: Tensor | Sequence[float], image_size: int | tuple[int, int], *, pixel: float = 1.0,
        bins: int | None = None, spacing: float | None = None, source: float | None = None, detector: float = 0.0,
        offset: float = 0.0, curved: bool = False, seen: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        require(
            pixel > 0 and (spacing is None or spacing > 0), f"Radon: pixel > 0 and spacing > 0, got {pixel}, {spacing}"
        )
        angles = torch.as_tensor(angles, dtype=torch.float64, device="cpu")
        H, W = (image_size, image_size) if isinstance(image_size, int) else image_size
        magnified = 1.0 if source is None else (source + detector) / source
        spacing = pixel * magnified if spacing is None else spacing
        if bins is None:
            reach = pixel * math.hypot(H, W) / 2
            if source is not None and source > reach:  # the shadow of a disk is wider than the disk, magnified
                angle = math.asin(reach / source)
                reach = (source + detector) * (angle if curved else math.tan(angle))
            bins = 2 * math.ceil(reach / spacing) + 1
        self.geometry = Geometry(angles, (H, W), pixel, bins, spacing, source, detector, offset, curved)
        starts, columns, lengths = ray_lengths(self.geometry)
        there = _sparse(starts, columns, lengths, H * W)
        back = there.t().to_sparse_csr()
        for key, value in {
            "starts": starts, "columns": columns, "lengths": lengths, "back_starts": back.crow_indices().int(),
            "back_columns": back.col_indices().int(), "back_lengths": back.values(),
        }.items():  # fmt: skip
            self.register_buffer(key, value)
        self.register_buffer("seen", None)
        self.register_buffer("largest", self._largest())
        self._see(seen)

    def of_views(self, seen: Tensor | None) -> Radon:
        """Return another operator with this matrix, for some of the views of every sample, `seen` (B, views)."""
        made = Radon.__new__(Radon)
        torch.nn.Module.__init__(made)
        made.__dict__.update({key: v for key, v in vars(self).items() if not key.startswith("_")})
        made._buffers = dict(self._buffers)
        made._buffers["seen"] = None
        made._see(seen)
        return made

    def _see(self, seen: Tensor | None) -> None:
        if seen is not None:
            require_tensor("Radon: seen", seen)
            views = len(self.geometry.angles)
            fits = seen.ndim == 2 and seen.shape[1] == views
            require(fits, f"Radon: seen must be (B, {views}), got {shape(seen)}")
            self._buffers["seen"] = seen.to(self.lengths)[:, None, :, None]

    @property
    def measured(self) -> tuple[int, int]:
        """(views, bins) of the measurements."""
        return len(self.geometry.angles), self.geometry.bins

    def A(self, x: Tensor) -> Tensor:
        """Integrate images (B, C, H, W) along all rays."""
        if x.ndim != 4 or tuple(x.shape[-2:]) != self.geometry.image_size:
            H, W = self.geometry.image_size
            raise ValueError(f"{self}: images of shape {shape(x)} where (B, C, {H}, {W}) is expected")
        y = self._apply_matrix(x, self.measured, forward=True)
        return y if self.seen is None else y * self._seen_like(y)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Add every measurement (B, C, views, bins) to the pixels on its ray, times the length of the ray in them."""
        if y.ndim != 4 or tuple(y.shape[-2:]) != self.measured:
            views, bins = self.measured
            raise ValueError(f"{self}: measurements of shape {shape(y)} where (B, C, {views}, {bins}) is expected")
        y = y if self.seen is None else y * self._seen_like(y)
        return self._apply_matrix(y, self.geometry.image_size, forward=False)

    def known_norm(self, like: Tensor) -> Tensor:
        """Return the norm, found once; of some of the views as if each had the same share, which is nearly true."""
        if self.seen is None:
            return self.largest
        return self.largest * self.seen.mean((1, 2, 3)).sqrt()

    def precondition(self, r: Tensor, rho: Tensor) -> Tensor:
        """Approximate (A'A + rho I)^-1 r: in the middle of the image A'A is a convolution, nearly with 1 / distance.

        Its Fourier coefficients are those of what A'A makes of the pixel in the middle, with zeros around the image.
        Few views have coefficients that are too small elsewhere, so that `rho` counts as 1 % of the largest at least.
        """
        H, W = r.shape[-2:]
        least = LEAST_RHO * self.known_norm(r).square().reshape(-1, 1, 1, 1)
        divided = torch.fft.rfft2(r, s=(2 * H, 2 * W)) / (self._spectrum(r) + torch.maximum(rho, least.to(rho)))
        return torch.fft.irfft2(divided, s=(2 * H, 2 * W))[..., :H, :W]

    def _spectrum(self, like: Tensor) -> Tensor:
        def compute() -> Tensor:
            H, W = self.geometry.image_size
            point = like.new_zeros(1 if self.seen is None else len(self.seen), 1, H, W)
            point[..., H // 2, W // 2] = 1
            response = F.pad(self.A_adjoint(self.A(point)), (0, W, 0, H)).roll((-(H // 2), -(W // 2)), (-2, -1))
            return torch.fft.rfft2(response).real.clamp(min=0)

        source = self.lengths if self.seen is None else self.seen
        return self.computed_once("spectrum", like.dtype, source, compute)

    def _seen_like(self, y: Tensor) -> Tensor:
        assert self.seen is not None
        return self.seen.to(y.dtype)

    def _apply_matrix(self, v: Tensor, result: tuple[int, int], forward: bool) -> Tensor:
        there = (self.starts, self.columns, self.lengths)
        back = (self.back_starts, self.back_columns, self.back_lengths)
        first, second = (there, back) if forward else (back, there)
        B, C = v.shape[:2]
        v = v.float() if v.dtype in (torch.float16, torch.bfloat16) else v
        with torch.autocast(v.device.type, enabled=False):  # sparse products know no bfloat16
            out: Tensor = _Product.apply(v.reshape(B * C, -1), *first, *second)  # type: ignore[no-untyped-call]
        return out.reshape(B, C, *result)

    def _largest(self) -> Tensor:
        """The norm, by power iterations from ones, which resemble the first right vector: no entry of A is negative."""
        x = self.lengths.new_ones(1, 1, *self.geometry.image_size)
        value = x.new_ones(())
        for _ in range(NORM_ITERATIONS):
            x = x / x.norm()
            Ax = self.A(x)
            value, x = Ax.norm(), self.A_adjoint(Ax)
        return value

    def extra_repr(self) -> str:
        """Show views, bins and the kind of beam."""
        g = self.geometry
        H, W = g.image_size
        beam = "parallel" if g.source is None else "fan"
        return f"{len(g.angles)} views, {g.bins} bins, {beam}, {H}x{W}"


class _Product(torch.autograd.Function):
    """v M' for rows v (B, n) and a sparse matrix M (m, n), given with its transpose: torch's own would be made anew."""

    @staticmethod
    def forward(v: Tensor, starts: Tensor, columns: Tensor, values: Tensor, *transposed: Tensor) -> Tensor:
        matrix = _sparse(starts, columns, values.to(v.dtype), v.shape[1])
        return (matrix @ v.t()).t()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.matrices = inputs[1:4], inputs[4:7]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        matrix, transposed = ctx.matrices
        grad: Tensor = _Product.apply(grad_outputs[0], *transposed, *matrix)  # type: ignore[no-untyped-call]
        return grad, None, None, None, None, None, None


def _sparse(starts: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    _hush()
    return torch.sparse_csr_tensor(starts, columns, values, (len(starts) - 1, width), check_invariants=False)


@functools.cache
def _hush() -> None:
    """Have torch say once in a process, to nobody, that its sparse rows are in beta state."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.ones(1, 1, device="cpu").to_sparse_csr()
