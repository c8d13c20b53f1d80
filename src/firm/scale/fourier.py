"""Fourier transforms of real images as products with matrices of cosines and sines.

Runtimes know matrix products, few know Fourier transforms. onnxruntime has them, but what torch makes of ``irfft2``
does not run there when the size is free. For 128x128 pixels the products take less time than the network by far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Sizes = int  # or, while torch.export traces, a torch.SymInt, which its types do not know


def _waves(rows: Sizes, n: Sizes, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi j k / n for j < rows and k < n.

    j k is reduced to -n/2 ... n/2 first, which keeps all digits: in float32 this is exact for n up to 4096.
    """
    j, k = (torch.arange(m, device=like.device).to(like.dtype) for m in (rows, n))
    product = j[:, None] * k
    phase = (product - n * (product / n).round()) * (2 * math.pi) / n
    return phase.cos(), phase.sin()


def rfft2(x: Tensor) -> Tensor:
    """torch.fft.rfft2 of images (..., H, W): (..., H, W // 2 + 1), complex."""
    H, W = x.shape[-2:]
    c, s = _waves(W // 2 + 1, W, x)
    real, imag = x @ c.T, -(x @ s.T)
    c, s = _waves(H, H, x)
    return torch.complex(c @ real + s @ imag, c @ imag - s @ real)


def irfft2(x: Tensor, s: Sequence[Sizes]) -> Tensor:
    """torch.fft.irfft2 of spectra (..., H, W // 2 + 1) to real images of the size `s`, (..., H, W)."""
    real, imag = (x.real, x.imag) if x.is_complex() else (x, torch.zeros_like(x))
    H, W = s
    c, d = _waves(H, H, real)
    real, imag = c @ real - d @ imag, c @ imag + d @ real
    c, d = _waves(W // 2 + 1, W, real)
    j = torch.arange(W // 2 + 1, device=real.device)
    twice = torch.where((j == 0) | (2 * j == W), 1.0, 2.0)[:, None] / (H * W)  # the half that is left out counts too
    return real @ (c * twice) - imag @ (d * twice)


# In place of torch.fft.rfft2 and irfft2 as the operators call them, on the last two axes.
REAL: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.fft_rfft2.default: rfft2,
    torch.ops.aten.fft_irfft2.default: irfft2,
}
