"""A flow prior as a denoiser, by a change of variables."""

from __future__ import annotations

import torch
from torch import Tensor

from firm.baselines._common import Denoiser, Prior


def as_denoiser(prior: Prior) -> Denoiser:
    """D(x, sigma) from v(x, t): noise of level sigma on an image, scaled by t = 1/(1 + sigma), is the flow's state.

    With x = x_1 + sigma n, t x = t x_1 + (1 - t) n because t sigma = 1 - t; so D(x, sigma) = D_t(t x).
    """

    def denoise(x: Tensor, sigma: Tensor) -> Tensor:
        t = 1 / (1 + torch.as_tensor(sigma, dtype=x.dtype, device=x.device).expand(len(x)))
        s = t.reshape(-1, *[1] * (x.ndim - 1))
        return s * x + (1 - s) * prior(s * x, t)

    for name in ("config", "stride"):  # so that images of a wrong size or kind are refused before any work
        if hasattr(prior, name):
            setattr(denoise, name, getattr(prior, name))
    return denoise
