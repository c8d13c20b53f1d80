"""What metrics and pictures see of an image."""

from __future__ import annotations

from torch import Tensor


def visible(x: Tensor, complex_images: bool = False) -> Tensor:
    """Images (B, C, H, W) in [-1, 1] as they are; of complex ones the magnitude |x| in [0, 1], mapped to [-1, 1].

    Complex images come as 2c channels, all real parts, then all imaginary parts; c channels are left.
    """
    if not complex_images:
        return x
    real, imaginary = x.chunk(2, dim=1)
    return 2 * (real.square() + imaginary.square()).sqrt() - 1


def require_real(metric: str, x: Tensor, truth: Tensor) -> None:
    """Raise TypeError if images have a complex type."""
    if x.is_complex() or truth.is_complex():
        raise TypeError(f"{metric}: images are real here; of complex ones, compare the magnitudes, x.abs()")
