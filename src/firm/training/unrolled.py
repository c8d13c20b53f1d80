"""The objective of ISTA-Net+: the image itself, by mean squares, and transforms that invert each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from firm.data.images import Images
from firm.evaluation import NamedMethod
from firm.networks import ISTANet
from firm.operators import Identity
from firm.training.objectives import Batch, Objective
from firm.training.validation import scored

SYMMETRY = 0.01  # weight of the symmetry residuals


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
