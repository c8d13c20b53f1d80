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

Size = int  # or, while torch.export traces, a torch.SymInt, which its types do not know


def _waves(count: Size, n: Size, like: Tensor, positions: Size | None = None, center: int = 0) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi j k / n for frequencies j < count and positions k = -center, 1 - center ...; n if not given.

    j k is reduced to -n/2 ... n/2 first, which keeps all digits: in float32 this is exact for n up to 4096.
    """
    j = torch.arange(count, device=like.device).to(like.dtype)
    k = torch.arange(n if positions is None else positions, device=like.device).to(like.dtype) - center
    product = j[:, None] * k
    phase = (product - n * (product / n).round()) * (2 * math.pi) / n
    return phase.cos(), phase.sin()


def rfft2(x: Tensor) -> Tensor:
    """torch.fft.rfft2 of images (..., H, W): (..., H, W // 2 + 1), complex."""
    H, W = x.shape[-2:]
    return _transformed(x, _waves(H, H, x), _waves(W // 2 + 1, W, x))


def spectrum(kernel: Tensor, H: Size, W: Size) -> Tensor:
    """The Fourier coefficients of a kernel (h, w), centered at (h // 2, w // 2), at the size of images (H, W)."""
    h, w = kernel.shape
    return _transformed(kernel, _waves(H, H, kernel, h, h // 2), _waves(W // 2 + 1, W, kernel, w, w // 2))


def _transformed(x: Tensor, rows: tuple[Tensor, Tensor], columns: tuple[Tensor, Tensor]) -> Tensor:
    (c, s), (d, e) = rows, columns
    real, imag = x @ d.T, -(x @ e.T)
    return torch.complex(c @ real + s @ imag, c @ imag - s @ real)


def irfft2(x: Tensor, s: Sequence[Size]) -> Tensor:
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
