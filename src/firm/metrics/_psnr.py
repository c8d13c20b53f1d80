"""Peak signal-to-noise ratio."""

from __future__ import annotations

from torch import Tensor

from firm.metrics._visible import require_real


def psnr(x: Tensor, truth: Tensor) -> Tensor:
    """PSNR in dB of each image, (B,), for images (B, C, H, W) in [-1, 1]; not clamped.

    The same number as with images mapped to [0, 1] and a data range of 1.
    """
    if x.shape != truth.shape:
        raise ValueError(f"psnr: images of shape {tuple(x.shape)} and a truth of shape {tuple(truth.shape)}")
    require_real("psnr", x, truth)
    mse = (x - truth).square().flatten(1).mean(1)
    return 10 * (4 / mse).log10()
