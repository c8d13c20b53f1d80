"""Super-resolution: every s-th pixel, bare or after an anti-aliasing filter, and the image to start from."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from firm._util.checks import require
from firm.operators.base import LinearOperator, Operator, dimensions, is_linear, largest, shape
from firm.operators.blur import checked_kernel, filtered, transfer
from firm.operators.patterns import resize_kernel


class Subsample(Operator):
    """A x keeps the pixels whose row and column are multiples of `factor`; (B, C, H, W) to (B, C, H/s, W/s).

    Parameters
    ----------
    factor
        The stride s >= 1.
    image_size
        (H, W) of the images. Needed only where H or W is not a multiple of `factor`: the adjoint cannot tell it
        from the measurement.
    """

    def __init__(self, factor: int, image_size: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.factor = _stride(self, factor)
        self.image_size = image_size

    def A(self, x: Tensor) -> Tensor:
        """Keep every `factor`-th row and column."""
        (H, W), s = x.shape[-2:], self.factor
        small = _keep(x, s)
        h, w = self._image_size(small)
        if (h, w) != (H, W):
            raise ValueError(
                f"{self}: images of shape {shape(x)} where {h}x{w} is expected; sides that are no multiple of "
                f"{s} need Subsample({s}, image_size=({H}, {W}))"
            )
        return small

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Put the values back on their grid, zeros between."""
        x = y.new_zeros(*y.shape[:2], *self._image_size(y))
        _keep(x, self.factor).copy_(y)
        return x

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The inpainting update on the sampled grid: (y + rho z) / (1 + rho) there, z elsewhere; rho = 1/gamma."""
        x = z.clone()
        _keep(x, self.factor).copy_((gamma * y + _keep(z, self.factor)) / (gamma + 1))
        return x

    def diagonal(self, y: Tensor) -> Tensor:
        """A A' = I: every measurement is a pixel of its own."""
        return y.new_ones((), dtype=y.real.dtype)

    def known_norm(self, like: Tensor) -> Tensor:
        """Pixels are kept as they are: the norm is 1."""
        return torch.ones((), device="cpu")

    def _image_size(self, y: Tensor) -> tuple[int, int]:
        return self.image_size or (y.shape[-2] * self.factor, y.shape[-1] * self.factor)

    def extra_repr(self) -> str:
        """Show the factor."""
        return f"{self.factor}" + (f", image_size={self.image_size}" if self.image_size else "")


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
        self.factor = _stride(self, factor)
        self.filter = filter if isinstance(filter, str) else dimensions(filter)
        kernel = resize_kernel(self.factor, filter) if isinstance(filter, str) else filter
        self.register_buffer("kernel", checked_kernel(self, kernel, check))

    def A(self, x: Tensor) -> Tensor:
        """Filter, then keep every `factor`-th row and column."""
        (H, W), s = x.shape[-2:], self.factor
        if H % s or W % s:
            raise ValueError(
                f"{self}: both sides of images {shape(x)} must be multiples of {s}; crop them to "
                f"{H - H % s}x{W - W % s}, or pad them"
            )
        return _keep(filtered(x, transfer(self, self.kernel, x)), s)

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Zeros between the values, then the flipped filter."""
        x = y.new_zeros(*y.shape[:2], y.shape[-2] * self.factor, y.shape[-1] * self.factor)
        _keep(x, self.factor).copy_(y)
        return filtered(x, transfer(self, self.kernel, x).conj())

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """x = z + A'(AA' + rho I)^-1 (y - A z), with rho = 1/gamma: (A'A + rho I)^-1 A' = A'(AA' + rho I)^-1.

        AA' is the circular convolution of the small image with the autocorrelation of the kernel at every
        `factor`-th shift. Its Fourier coefficients are the mean of |Lambda|^2 over the s^2 frequencies that alias.
        """
        return z + self.A_adjoint(filtered(y - self.A(z), gamma / (gamma * self._folded(z) + 1)))

    def diagonal(self, y: Tensor) -> Tensor | None:
        """A A' = I / s^2 for "box": every measurement is the mean of s^2 pixels of its own."""
        return y.new_full((), self.factor**-2, dtype=y.real.dtype) if self.filter == "box" else None

    def known_norm(self, like: Tensor) -> Tensor:
        """The root of the largest Fourier coefficient of AA'."""
        return largest(self._folded(like)).sqrt()

    def _folded(self, x: Tensor) -> Tensor:
        """The Fourier coefficients of AA' for images like `x`, see `prox_l2`."""

        def compute() -> Tensor:
            power = transfer(self, self.kernel, x).abs().square()
            autocorrelation = torch.fft.irfft2(power, s=(x.shape[-2], x.shape[-1]))
            return torch.fft.rfft2(_keep(autocorrelation, self.factor)).real.clamp(min=0)

        return self.computed_once("folded", (*x.shape[-2:], x.dtype), self.kernel, compute)

    def extra_repr(self) -> str:
        """Show the factor and the filter."""
        return f"{self.factor}, {self.filter}"


def first_guess(op: LinearOperator, y: Tensor) -> Tensor:
    """Return the image (B, C, H, W) that an iterative method starts from: A'y or, in super-resolution, y enlarged.

    A measurement that is a smaller image is interpolated (bicubic). Where its pixel j lies in the large image, s j for
    a stride and s j + (s - 1) / 2 for a filter that averages s pixels, is found from what A makes of a ramp.
    """
    x = op.A_adjoint(y)
    small = is_linear(op) and y.ndim == 4 and not y.is_complex() and y.shape[1] == x.shape[1]
    if not small or y.shape[2] >= x.shape[2] or y.shape[3] >= x.shape[3]:
        return x
    (H, W), (h, w) = x.shape[2:], y.shape[2:]
    if H % h or W % w or min(h, w) < 2:
        return x  # cut off at its rim, not shrunk
    axes = []
    for axis, n, m in ((-2, H, h), (-1, W, w)):
        pixels = torch.arange(n, device=y.device, dtype=y.dtype)
        position = pixels - _offset(op, x, axis, n // m)[:, None]
        axes.append(2 * position / (n // m) / (m - 1) - 1)  # in the small image, whose ends are -1 and 1
    rows, columns = axes
    grid = torch.stack([columns[:, None, :].expand(-1, H, -1), rows[:, :, None].expand(-1, -1, W)], dim=-1)
    return F.grid_sample(y, grid.expand(len(y), -1, -1, -1), "bicubic", "border", align_corners=True)


def _offset(op: LinearOperator, x: Tensor, axis: int, s: int) -> Tensor:
    """Find how far small pixels lie behind every s-th pixel of images like `x`, (B,), from what they average."""
    ramp = torch.arange(x.shape[axis], device=x.device, dtype=x.dtype)
    ramp = (ramp[:, None] if axis == -2 else ramp).expand(x.shape)
    center = op.A(ramp) / op.A(torch.ones_like(x))
    h, w = center.shape[-2:]  # in the middle, far from the rim, where a filter may wrap around
    offset = center[:, 0, h // 2, w // 2] - s * (center.shape[axis] // 2)
    return offset.nan_to_num(0, 0, 0).clamp(-s, s)  # weights that sum to about 0 have no center


def _stride(op: Operator, factor: int) -> int:
    kind = type(op).__name__
    require(int(factor) == factor and factor >= 1, f"{kind}: factor must be a whole number >= 1, got {factor}")
    return int(factor)


def _keep(x: Tensor, factor: int) -> Tensor:
    return x[..., ::factor, ::factor]
