"""An unconditional flow prior: v(x, t) between noise and images, the network that PnP-Flow and its kin plug in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from firm._flow import interpolate
from firm._sampling import noise_like
from firm.data.images import Images
from firm.metrics import psnr
from firm.networks import PriorUNet, denoise
from firm.training.batch import Batch
from firm.training.errors import ConfigError
from firm.training.objectives import Objective
from firm.training.pairing import pair
from firm.training.validation import save_sheet

if TYPE_CHECKING:
    from firm.training.config import TrainConfig

LEVELS = (0.2, 0.1, 0.5)  # of the noise that validation removes, for images in [-1, 1]; the first one chooses the best
SAMPLES, STEPS = 12, 20  # pictures drawn in a validation, Euler steps for each


class Prior(Objective):
    """E |v(x_t, t) - (x_1 - x_0)|^2 with x_t = (1 - t) x_0 + t x_1 and uniform t (set t_min: 0 and t_max: 0.9999)."""

    kind = "prior"
    measures = False
    network_class = PriorUNet
    fits = ("PriorUNet", "PriorResUNet")

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.noise_level:
            raise ConfigError("objective=prior has no measurements: its network takes no noise_level")

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The error of the velocity, averaged over the pixels."""
        x_0 = batch.randn()
        if self.config.pairing == "optimal":
            x_0 = x_0[pair(x_0, batch.x_1)]
        v = net(interpolate(x_0, batch.x_1, batch.t), batch.t)
        return (v - (batch.x_1 - x_0)).square().flatten(1).mean(1), batch.t

    @torch.no_grad()
    def validate(self, net: nn.Module, images: Images, picture: Path | None) -> dict[str, float]:
        """PSNR of denoising with the prior, at the noise of `LEVELS`, and a picture of samples."""
        device = next(net.parameters()).device
        scores: dict[str, float] = {}
        for sigma in LEVELS:
            generator, values = torch.Generator().manual_seed(0), []
            for first in range(0, len(images), 16):
                x = images.batch(range(first, min(first + 16, len(images)))).to(device)
                values.append(psnr(denoise(net, x + sigma * noise_like(x, generator), sigma), x))
            scores[f"psnr sigma={sigma}"] = round(float(torch.cat(values).mean()), 4)
        if picture is not None:
            drawn = sample_prior(net, (SAMPLES, *images.data.shape[1:]), STEPS, seed=0)
            titled = [(f"sample {i + 1}", x) for i, x in enumerate(drawn)]
            save_sheet([titled[i : i + SAMPLES // 3] for i in range(0, SAMPLES, SAMPLES // 3)], picture)
        return scores


@torch.no_grad()
def sample_prior(prior: nn.Module, shape: tuple[int, ...], steps: int, seed: int = 0) -> Tensor:
    """Images drawn from the prior, by Euler steps of dx/dt = v(x, t)."""
    device = next(prior.parameters()).device
    x = noise_like(torch.empty(shape, device=device), torch.Generator().manual_seed(seed))
    for i in range(steps):
        x = x + prior(x, torch.full((len(x),), i / steps, device=device)) / steps
    return x
