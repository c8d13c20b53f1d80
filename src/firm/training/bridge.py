"""A bridge from the degraded to the clean image: the network of I2SB, one for several tasks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from firm._prepare import Generators
from firm._util.checks import require
from firm.baselines import _i2sb
from firm.data.images import Images
from firm.evaluation import NamedMethod
from firm.networks import PriorUNet
from firm.operators import LinearOperator
from firm.operators.base import per_sample
from firm.training.objectives import Batch, ConfigError, Objective
from firm.training.validation import scored

if TYPE_CHECKING:
    from firm.training.config import TrainConfig

SAMPLER_STEPS = 20  # of I2SB, in a validation


class Bridge(Objective):
    """E |e(x_n, t_n) - (x_n - clean) / s_n|^2 with x_n ~ q(x_n | clean, degraded) and n uniform in 0 .. 999.

    FIRM's x_1 is `clean` here, x_0 in the publication; set t_min: 0 and t_max: 0.9999, so that n = floor(1000 t) takes
    every value. In inpainting only the holes count, and the error is the mean over them: in a mixture a small hole
    weighs as much as a whole image. (The published code, which trains for one task, divides by all pixels.)
    A network on two images (`UNet`, `ResUNet`) sees the degraded image too, e(x_n, degraded, t_n), as
    `degraded_image` says: with zeros in its holes, and not at all where there is neither noise nor a hole.
    """

    kind = "bridge"
    noise_level = False
    network_class = PriorUNet
    fits = ("PriorUNet", "PriorResUNet", "UNet", "ResUNet")

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        message = "objective=bridge: the network sees x and the degraded image at most, and takes no extra"
        require(not config.network_arguments()[1].get("extra"), message, ConfigError)
        self.conditioned = _i2sb.sees_degraded(config.network_class())

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the error in the pixels that count, averaged; one network call serves all tasks."""
        filling, eps = batch.randn(), batch.randn()
        n = (batch.t * _i2sb.INTERVALS).long().clamp(0, _i2sb.INTERVALS - 1)
        parts = [
            _between(op, y, batch.x_1[rows], n[rows], filling[rows], eps[rows])
            for op, y, _, rows in batch.measure_each()
        ]
        x, degraded, target, counts = (torch.cat(part) for part in zip(*parts, strict=True))
        given = (degraded,) if self.conditioned else ()
        error = counts * (net(x, *given, _times(x.device)[n]) - target).square()
        return error.flatten(1).sum(1) / counts.flatten(1).sum(1).clamp(min=1), batch.t

    @torch.no_grad()
    def validate(self, net: nn.Module, images: Images, picture: Path | None) -> dict[str, float]:
        """Score by the PSNR of the restored images, over all tasks, then in each; and draw the first."""

        def run(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
            return _i2sb.i2sb(net, op, y, sigma, steps=SAMPLER_STEPS, conditioned=self.conditioned, generator=generator)

        method = NamedMethod("I2SB", run, SAMPLER_STEPS)
        return scored(method, self.config, images, next(net.parameters()).device, picture)


@torch.no_grad()
def _between(
    op: LinearOperator, y: Tensor, clean: Tensor, n: Tensor, filling: Tensor, eps: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw x_n ~ q(x_n | clean, degraded), in float32 and without waiting for the device.

    `n` are steps on the bridge, (B,); `filling` is the noise for the holes, and `eps` that of the bridge. Returns x_n,
    what the network is shown beside it, the network's target, and 1 where that counts; all (B, C, H, W).
    """
    beta_max, ode = _i2sb.mode_of(op)
    with torch.autocast(clean.device.type, enabled=False):
        degraded, known, beside = _i2sb.degraded_image(op, y, filling, ode)
        share, spread, s = (per_sample(table[n], clean) for table in _tables(beta_max, clean.device))
        x = clean + share * (degraded - clean)
        if not ode:
            x = x + spread * eps
        counts = torch.ones_like(clean) if known is None else torch.ones_like(clean).masked_fill(known, 0)
        return x, beside, (x - clean) / s, counts


@cache
def _tables(beta_max: float, device: torch.device) -> tuple[Tensor, ...]:
    """Return the degraded image's weight, the noise level and s_n at every step, (1000,) each, on the device."""
    s2, share, variance = _i2sb.schedule(beta_max)
    return tuple(v.to(device, torch.float32) for v in (share, variance.sqrt(), s2.sqrt()))


@cache
def _times(device: torch.device) -> Tensor:
    return _i2sb.TIMES.to(device, torch.float32)
