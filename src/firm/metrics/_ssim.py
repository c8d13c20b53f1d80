"""Structural similarity."""

from __future__ import annotations

from torch import Tensor


def ssim(x: Tensor, truth: Tensor) -> Tensor:
    """SSIM of each image, (B,), for images (B, C, H, W) in [-1, 1].

    11x11 Gaussian window of standard deviation 1.5, averaged over the whole image and its channels, with a data range
    of 1 on images mapped to [0, 1]: the protocol's. Sides below 11 pixels are an error.
    """
    from torchmetrics.functional.image import structural_similarity_index_measure  # takes half a second to import

    if min(x.shape[-2:]) < 11:
        raise ValueError(f"ssim: images must have at least 11x11 pixels, got {x.shape[-2]}x{x.shape[-1]}")
    value = structural_similarity_index_measure(
        (x + 1) / 2, (truth + 1) / 2, gaussian_kernel=True, sigma=1.5, kernel_size=11, data_range=1.0, reduction="none"
    )
    assert isinstance(value, Tensor)
    return value.reshape(len(x))
