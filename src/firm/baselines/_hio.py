"""Hybrid input-output: phase retrieval without a prior beyond where the light is (Fienup, 1982)."""

from __future__ import annotations

import torch
from torch import Tensor

from firm._prepare import Generators, noise_like
from firm._util.checks import require
from firm.operators import Magnitude, Oversampled


@torch.no_grad()
def hio(
    op: Magnitude, y: Tensor, *, steps: int = 500, feedback: float = 0.9, restarts: int = 4, clean_up: int = 50,
    generator: Generators = None,
) -> Tensor:  # fmt: skip
    """Restore images (B, C, H, W) from magnitudes `y` of `Magnitude(Oversampled(s))`. No network is called.

    From random light g, on the oversampled grid, with p the phases of F g:

        g' = F^-1 (y p),    g = g' where it is allowed, g - feedback g' elsewhere,

    and allowed is what lies in the image and is at least 0; the last `clean_up` steps set the rest to 0 (error
    reduction). Of the restarts each channel of each image takes the one of least misfit.
    """
    fits = isinstance(op, Magnitude) and isinstance(op.op, Oversampled)
    require(fits, f"hio: takes magnitudes of an oversampled Fourier transform, not {op!r}")
    x = op.guess(y)
    H, W = x.shape[-2:]
    inside = torch.zeros(y.shape[-2:], device=y.device, dtype=torch.bool)
    inside[:H, :W] = True
    y = y.clamp(min=0)
    best, least = x, torch.full(x.shape[:2], torch.inf, device=y.device, dtype=y.dtype)
    for _ in range(restarts):
        g = torch.fft.ifft2(y * torch.sgn(torch.fft.fft2(noise_like(y, generator))), norm="ortho").real
        for step in range(steps):
            spectrum = torch.fft.rfft2(g, norm="ortho")
            full = torch.fft.irfft2(y[..., : spectrum.shape[-1]] * torch.sgn(spectrum), s=y.shape[-2:], norm="ortho")
            allowed = inside & (full >= 0)
            g = torch.where(allowed, full, 0 * g if step >= steps - clean_up else g - feedback * full)
        found = g[..., :H, :W] + op.black
        misfit = (op.A(found) - y).square().mean((2, 3))
        better = misfit < least
        best, least = torch.where(better[..., None, None], found, best), torch.where(better, misfit, least)
    return best
