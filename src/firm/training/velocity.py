"""FIRM's objective: the velocity loss of Algorithm 1, with the solver of Algorithm 3 inside."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from firm._flow import velocity_error
from firm._model import Firm, Solver
from firm.data.images import Images
from firm.training.batch import Batch
from firm.training.objectives import Objective
from firm.training.validation import validate

if TYPE_CHECKING:
    from firm.training.config import TrainConfig


class Velocity(Objective):
    """E |v - (x_1 - x_t) / tau|^2 (equation (23)); weighted by omega(t) or balanced over the times."""

    kind = "firm"

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.weights = "balanced" if config.objective == "balanced" else "omega"
        self.solver = Solver(config.K, config.rho, config.beta, config.output)

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Lines 3 to 7 of Algorithm 1; a single call on [A'y, x_t] in the warm start."""
        op, y, sigma = batch.measure()
        x_0 = batch.randn()
        model = Firm(net, dataclasses.replace(self.solver, K=0) if batch.warm else self.solver)
        error = velocity_error(model, op, batch.x_1, y, x_0, batch.t, sigma=sigma, tau_min=self.config.tau_min)
        return error, batch.t

    def calls(self) -> int:
        """K, with the solver on."""
        return max(self.solver.K, 1)

    def save(self, net: nn.Module, card: dict[str, Any], path: Path) -> None:
        """Write the model with the solver's settings."""
        Firm(net, self.solver, card).save(path)

    def validate(self, net: nn.Module, images: Images, picture: Path | None) -> dict[str, float]:
        """PSNR of the restored images, in every task, for every N of ``val_steps``."""
        return validate(Firm(net, self.solver), self.config, images, picture)
