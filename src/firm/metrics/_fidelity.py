"""PSNR and SSIM of images, and what metrics and pictures see of complex ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

C1, C2 = 0.01**2, 0.03**2  # of the definition of SSIM, for a data range of 1
WHOLE = 2**19  # pixels of a picture that is taken in one piece


def visible(x: Tensor, complex_images: bool = False) -> Tensor:
    """Return images (B, C, H, W) in [-1, 1] as they are; of complex ones the magnitude |x| in [0, 1], as 2 |x| - 1.

    Complex images come as 2c channels, all real parts, then all imaginary parts; c channels are left.
    """
    if not complex_images:
        return x
    real, imaginary = x.chunk(2, dim=1)
    return 2 * (real.square() + imaginary.square()).sqrt() - 1


def require_comparable(metric: str, x: Tensor, truth: Tensor) -> None:
    """Raise ValueError unless two batches have one shape, TypeError if they are complex."""
    if x.shape != truth.shape:
        raise ValueError(f"{metric}: images of shape {tuple(x.shape)} and a truth of shape {tuple(truth.shape)}")
    if x.is_complex() or truth.is_complex():
        raise TypeError(f"{metric}: images are real here; of complex ones, compare the magnitudes, x.abs()")


def psnr(x: Tensor, truth: Tensor) -> Tensor:
    """Return the peak signal-to-noise ratio in dB of each image, (B,), for images (B, C, H, W) in [-1, 1].

    It is 10 log10(4 / mean squared error) and not clamped: the same number as with images mapped to [0, 1] and a data
    range of 1.
    """
    require_comparable("psnr", x, truth)
    mse = (x - truth).square().flatten(1).mean(1)
    return 10 * (4 / mse).log10()


def ssim(x: Tensor, truth: Tensor) -> Tensor:
    """Return the structural similarity of each image, (B,), for images (B, C, H, W) in [-1, 1].

    11x11 Gaussian window of standard deviation 1.5, averaged over the whole image and its channels, with a data range
    of 1 on images mapped to [0, 1]: the protocol's. Sides below 11 pixels are an error. The numbers are those of
    torchmetrics, operation by operation; its import would load torchvision where that is installed, and fail with it.
    """
    require_comparable("ssim", x, truth)
    H, W = x.shape[-2:]
    if min(H, W) < 11:
        raise ValueError(f"ssim: images must have at least 11x11 pixels, got {H}x{W}")
    a, b = (F.pad((v + 1) / 2, (5, 5, 5, 5), mode="reflect") for v in (x, truth.to(x.dtype)))
    offsets = torch.arange(-5.0, 6.0, dtype=x.dtype, device=x.device)
    window = torch.exp(-((offsets / 1.5) ** 2) / 2)
    window = window / window.sum()
    kernel = torch.outer(window, window).expand(x.shape[1], 1, 11, 11)
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
