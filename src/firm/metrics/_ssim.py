"""Structural similarity."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from firm.metrics._visible import require_real

C1, C2 = 0.01**2, 0.03**2  # of the definition, for a data range of 1
WHOLE = 2**19  # pixels of a picture that is taken in one piece


def ssim(x: Tensor, truth: Tensor) -> Tensor:
    """SSIM of each image, (B,), for images (B, C, H, W) in [-1, 1].

    11x11 Gaussian window of standard deviation 1.5, averaged over the whole image and its channels, with a data range
    of 1 on images mapped to [0, 1]: the protocol's. Sides below 11 pixels are an error. The numbers are those of
    torchmetrics, operation by operation; its import would load torchvision where that is installed, and fail with it.
    """
    if min(x.shape[-2:]) < 11:
        raise ValueError(f"ssim: images must have at least 11x11 pixels, got {x.shape[-2]}x{x.shape[-1]}")
    if x.shape != truth.shape:
        raise ValueError(f"ssim: images of shape {tuple(x.shape)} and a truth of shape {tuple(truth.shape)}")
    require_real("ssim", x, truth)
    a, b = (F.pad((v + 1) / 2, (5, 5, 5, 5), mode="reflect") for v in (x, truth.to(x.dtype)))
    offsets = torch.arange(-5.0, 6.0, dtype=x.dtype, device=x.device)
    window = torch.exp(-((offsets / 1.5) ** 2) / 2)
    window = window / window.sum()
    kernel = torch.outer(window, window).expand(x.shape[1], 1, 11, 11)
    H, W = x.shape[-2:]
    if H * W <= WHOLE:
        return _similarity(a, b, kernel).flatten(1).mean(1)
    rows = max(1, WHOLE // W)  # a large picture strip by strip: the convolutions take fifteen times its memory
    total = x.new_zeros(len(x))
    for top in range(0, H, rows):
        strip = slice(top, top + rows + 10)
        total += _similarity(a[..., strip, :], b[..., strip, :], kernel).flatten(1).sum(1)
    return total / x[0].numel()


def _similarity(a: Tensor, b: Tensor, kernel: Tensor) -> Tensor:
    """The similarity at every pixel, (B, C, h, w), of images in [0, 1] with a rim of 5 pixels."""
    B, channels = a.shape[:2]
    means = F.conv2d(torch.cat([a, b, a * a, b * b, a * b]), kernel, groups=channels)
    mean_a, mean_b, square_a, square_b, product = means.split(B)
    variances = (square_a - mean_a**2).clamp(min=0) + (square_b - mean_b**2).clamp(min=0)
    covariance = product - mean_a * mean_b
    value: Tensor = (2 * mean_a * mean_b + C1) * (2 * covariance + C2)
    return value / ((mean_a**2 + mean_b**2 + C1) * (variances + C2))
