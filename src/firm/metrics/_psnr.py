"""Peak signal-to-noise ratio."""

from __future__ import annotations

from torch import Tensor


def psnr(x: Tensor, truth: Tensor) -> Tensor:
    """PSNR in dB of each image, (B,), for images (B, C, H, W) in [-1, 1]; not clamped.

    The same number as with images mapped to [0, 1] and a data range of 1.
    """
    if x.shape != truth.shape:
        raise ValueError(f"psnr: images of shape {tuple(x.shape)} and a truth of shape {tuple(truth.shape)}")
    if x.is_complex() or truth.is_complex():
        raise TypeError("psnr: images are real here; of complex ones, compare the magnitudes, x.abs()")
    mse = (x - truth).square().flatten(1).mean(1)
    return 10 * (4 / mse).log10()
