"""Networks of baselines that learn to return the image itself, by mean squares.

A denoiser D(x, sigma) of Gaussian noise, which PnP-HQS (DRUNet) and PnP-GS (GradientStep) plug in, and ISTA-Net+.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from firm._util.checks import require
from firm.data.images import Images
from firm.evaluation import NamedMethod
from firm.networks import DRUNet, ISTANet, Step
from firm.operators import Identity
from firm.tasks.denoising import Denoising
from firm.training.objectives import Batch, ConfigError, Objective
from firm.training.validation import denoising_scores, save_sheet, scored

if TYPE_CHECKING:
    from firm.training.config import TrainConfig

SYMMETRY = 0.01  # weight of the symmetry residuals of ISTA-Net+
LEVELS = (0.2, 0.1, 0.05)  # of the noise that validation removes, where training does, too; the first chooses the best


class Denoiser(Objective):
    """E |D(x + sigma n, sigma) - x|^2, with the sigma that the task `denoising` draws for every sample.

    ``mixture: [{name: denoising, sigma: [0, 0.25]}]`` draws it uniformly. (A range from above 0 is drawn uniformly in
    its logarithm.) The network is a `DRUNet`, or any that is called as ``net(x, sigma)``, such as
    ``network: {class: GradientStep, ...}``.
    """

    kind = "denoiser"
    noise_level = False  # the network gets sigma in any case
    takes_sigma = True
    network_class = DRUNet
    fits = ("DRUNet", "GradientStep", "GradientResStep")

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.tasks = config.make_tasks()
        other = ", ".join(task.name for task in self.tasks if not isinstance(task, Denoising))
        require(not other, f"objective=denoiser learns from the task denoising alone, not from {other}", ConfigError)
        kind = config.network_class()
        message = f"{kind.__name__} is trained through its own gradient, beyond torch.compile: set compile=false"
        require(not issubclass(kind, Step) or not config.compile, message, ConfigError)

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the error of the denoised images, averaged over the pixels."""
        op, y, sigma = batch.measure()
        noisy = op.A_adjoint(y)  # the images of all entries of a mixture: each has A = I
        return (net(noisy, sigma) - batch.x_1).square().flatten(1).mean(1), batch.t

    def inputs(self, batch_size: int, device: torch.device | str) -> tuple[Tensor, ...]:
        """Make images and noise levels, of one network call."""
        c = self.config
        x = torch.zeros(batch_size, c.channels, c.size, c.size, device=device)
        return x, torch.full((batch_size,), 0.1, device=device)

    @torch.no_grad()
    def validate(self, net: nn.Module, images: Images, picture: Path | None) -> dict[str, float]:
        """Score by the PSNR of the denoised images; draw truth, noisy and denoised.

        The noise is of those `LEVELS` that are trained for; of a denoiser for others, the strongest that it knows.
        """
        ranges = [task.ranges.get("sigma", (task.sigma, task.sigma)) for task in self.tasks]
        known = [level for level in LEVELS if any(low <= level <= high for low, high in ranges)]
        levels = known or [max(high for _, high in ranges)]
        device = next(net.parameters()).device
        scores, rows = denoising_scores(
            lambda y, level: net(y, torch.full((len(y),), level, device=device)), levels, images, device
        )
        if picture is not None:
            save_sheet(rows, picture)
        return scores


class Unrolled(Objective):
    """E |x - x_1|^2 + 0.01 sum_k |B_k(F_k(D_k r_k)) - D_k r_k|^2, both averaged over their entries; see `ISTANet`."""

    kind = "ista-net"
    network_class = ISTANet
    fits = ("ISTANet",)

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the error of the restored image and of the symmetry; the network knows no time."""
        op, y, _ = batch.measure()
        x, residual = net(op, y, True)
        return (x - batch.x_1).square().flatten(1).mean(1) + SYMMETRY * residual, batch.t

    def inputs(self, batch_size: int, device: torch.device | str) -> tuple[Any, ...]:
        """Make an operator that costs nothing, measurements of zeros, and the symmetry residuals asked for."""
        c = self.config
        return Identity(), torch.zeros(batch_size, c.channels, c.size, c.size, device=device), True

    def validate(self, net: nn.Module, images: Images, picture: Path | None) -> dict[str, float]:
        """Score by the PSNR of the restored images, averaged over the tasks too where there are several."""
        method = NamedMethod("ISTA-Net+", lambda op, y, sigma, generator: net(op, y))
        return scored(method, self.config, images, next(net.parameters()).device, picture)
