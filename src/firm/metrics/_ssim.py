"""Structural similarity."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

C1, C2 = 0.01**2, 0.03**2  # of the definition, for a data range of 1


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
    B, channels = x.shape[:2]
    a, b = (F.pad((v + 1) / 2, (5, 5, 5, 5), mode="reflect") for v in (x, truth.to(x.dtype)))
    offsets = torch.arange(-5.0, 6.0, dtype=x.dtype, device=x.device)
    window = torch.exp(-((offsets / 1.5) ** 2) / 2)
    window = window / window.sum()
    kernel = torch.outer(window, window).expand(channels, 1, 11, 11)
    means = F.conv2d(torch.cat([a, b, a * a, b * b, a * b]), kernel, groups=channels)
    mean_a, mean_b, square_a, square_b, product = means.split(B)
    variances = (square_a - mean_a**2).clamp(min=0) + (square_b - mean_b**2).clamp(min=0)
    covariance = product - mean_a * mean_b
    value = (2 * mean_a * mean_b + C1) * (2 * covariance + C2) / ((mean_a**2 + mean_b**2 + C1) * (variances + C2))
    return value.flatten(1).mean(1)
