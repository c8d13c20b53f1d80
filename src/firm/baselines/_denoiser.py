"""A flow prior as a denoiser, by a change of variables."""

from __future__ import annotations

from torch import Tensor

from firm.baselines._common import Denoiser, Prior
from firm.networks.denoise import denoise


def as_denoiser(prior: Prior) -> Denoiser:
    """D(x, sigma) from v(x, t): noise of level sigma on an image, scaled by t = 1/(1 + sigma), is the flow's state."""

    def denoiser(x: Tensor, sigma: Tensor) -> Tensor:
        return denoise(prior, x, sigma)

    for name in ("config", "stride"):  # so that images of a wrong size or kind are refused before any work
        if hasattr(prior, name):
            setattr(denoiser, name, getattr(prior, name))
    return denoiser
