"""The state of a training run: network, averaged network, optimisers, position; and one step of it."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from firm._flow import stratified_times
from firm._model import Firm, Solver, load
from firm._util.distributed import Ranks
from firm._util.machine import describe_machine
from firm.networks.unet import UNet
from firm.tasks import generator_for
from firm.training.config import ConfigError, TrainConfig
from firm.training.optimiser import Muon, make_optimisers
from firm.training.step import GraphedStep, Objective, Step, eager_step, prepare

PATIENCE = 10  # steps in a row whose gradient is not finite, before giving up


class Trainer:
    """Network, averaged network, optimiser and position of a run; `state` and `restore` are its checkpoint."""

    def __init__(self, config: TrainConfig, ranks: Ranks, pixels: Tensor) -> None:
        if config.batch % (ranks.world * config.accumulate):
            raise ConfigError(
                f"batch ({config.batch}) must be a multiple of processes x accumulate "
                f"({ranks.world} x {config.accumulate})"
            )
        self.config, self.ranks = config, ranks
        torch.manual_seed(config.seed)
        self.net = UNet(**config.unet_arguments())
        if config.init_from:
            self.net.load_state_dict(_initial_weights(config, self.net))
        self.average = copy.deepcopy(self.net).to(ranks.device).requires_grad_(False).eval()
        prepare(self.net, config, ranks.device)
        self.params = list(self.net.parameters())
        self.objective = Objective(config, self.net, pixels.to(ranks.device), ranks.world * config.accumulate)
        self.objective.to(ranks.device)
        self.optimisers = make_optimisers(config, self.net)
        self.gradients = self._step_function()
        self.step, self.elapsed, self.best = 0, 0.0, -math.inf
        self.skipped = torch.zeros((), device=ranks.device)  # steps in a row whose gradient was not finite
        self._events: list[torch.cuda.Event] = []
        self._times: tuple[int, Tensor] = (-1, torch.empty(0))

    def _step_function(self) -> Step:
        c, r = self.config, self.ranks
        graph = (
            c.cuda_graph and r.device.type == "cuda" and r.world == 1 and c.accumulate == 1 and c.recompute != "calls"
        )
        if graph:
            return GraphedStep(self.objective, self.params, c.batch)
        wrapped: nn.Module = self.objective
        if r.world > 1:
            devices = [r.device.index] if r.device.type == "cuda" else None
            wrapped = DistributedDataParallel(self.objective, device_ids=devices, broadcast_buffers=False)
        return eager_step(wrapped, self.params, c.accumulate, r.rank)

    @property
    def progress(self) -> float:
        """Share of the run that is done: of the steps, or of the minutes."""
        c = self.config
        return min(1.0, self.elapsed / (60 * c.max_minutes) if c.max_minutes else self.step / c.total_steps)

    @property
    def recording(self) -> float:
        """Seconds that compiling and recording took; they do not count as training time."""
        return self.gradients.recording if isinstance(self.gradients, GraphedStep) else 0.0

    def _before(self, epoch: int) -> bool:
        """Whether the run has not reached this epoch (with max_minutes: this share of the minutes)."""
        c = self.config
        return self.progress < epoch / c.epochs if c.max_minutes else self.step < epoch * c.steps_per_epoch

    def rate(self) -> float:
        """Learning rate: linear warm-up, then a cosine from `rate` to `rate_end`."""
        c = self.config
        cosine = c.rate_end + (c.rate - c.rate_end) * (1 + math.cos(math.pi * self.progress)) / 2
        return cosine * min(1.0, (self.step + 1) / max(1, c.rate_warmup))

    def times(self) -> Tensor:
        """The batch's times. They are drawn for a whole epoch, so that strata are covered across batches."""
        c = self.config
        epoch, position = divmod(self.step, c.steps_per_epoch)
        if self._times[0] != epoch:
            generator = generator_for(c.seed, epoch, "times")
            drawn = stratified_times(
                c.steps_per_epoch * c.batch, strata=c.strata, t_min=c.t_min, t_max=c.t_max, generator=generator
            )
            self._times = (epoch, drawn.reshape(c.steps_per_epoch, c.batch))
        return self._times[1][position].to(self.ranks.device)

    def advance(self) -> tuple[Tensor, Tensor]:
        """One optimiser step; returns loss and gradient norm. All randomness follows from the seed and the step."""
        c = self.config
        warm = self._before(c.warm_epochs)
        torch.manual_seed(generator_for(c.seed, self.step, "step").initial_seed())
        loss = self.gradients(self.times(), warm)
        norm = nn.utils.clip_grad_norm_(self.params, c.clip)
        self._update(norm)
        targets: list[Tensor] = list(self.average.parameters())
        sources: list[Tensor] = list(self.params)
        with torch.no_grad():
            if self._before(c.ema_from_epoch):
                torch._foreach_copy_(targets, sources)
            else:
                torch._foreach_lerp_(targets, sources, 1 - c.ema_decay)
        self.step += 1
        self._keep_pace()
        return loss, norm

    def _update(self, norm: Tensor) -> None:
        """Take the optimiser's step, unless the gradient is not finite. Decided on the device: nothing waits for it."""
        bad = (~norm.isfinite()).float()
        self.skipped = (self.skipped + bad) * bad
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = self.rate()
            if self.config.fused or isinstance(optimiser, Muon):
                optimiser.found_inf = bad  # type: ignore[attr-defined]  # the step is skipped where this is 1
                optimiser.step()
            elif not bad.item():
                optimiser.step()

    def check_finite(self) -> None:
        """Raise if the last steps were all skipped; reads from the device, so it is called now and then."""
        if self.skipped.item() >= PATIENCE:
            raise RuntimeError(
                f"the gradient was not finite in {int(self.skipped)} steps in a row, last at step {self.step}: "
                "lower the rate, switch bf16 off, or start again from an earlier checkpoint"
            )

    def _keep_pace(self) -> None:
        """Let the CPU run at most two steps ahead of the GPU: enough to hide its work, and clocks stay true."""
        if self.ranks.device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self._events.append(event)
            if len(self._events) > 2:
                self._events.pop(0).synchronize()

    def model(self) -> Firm:
        """The model with the averaged weights, as it is validated and saved."""
        c = self.config
        card = {
            "trained_for": c.tasks(), "objective": c.objective, "data": c.dataset, "size": c.size, "batch": c.batch,
            "steps": self.step, "minutes": round(self.elapsed / 60, 2), "machine": describe_machine(),
        }  # fmt: skip
        return Firm(self.average, Solver(c.K, c.rho, c.beta, c.output), card)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on from here; the random numbers follow from seed and step."""
        return {
            "network": self.config.unet_arguments(),
            "step": self.step,
            "elapsed": self.elapsed,
            "best": self.best,
            "net": self.net.state_dict(),
            "average": self.average.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "balance": self.objective.balance.state_dict() if self.objective.balance is not None else {},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a checkpoint."""
        self.step, self.elapsed, self.best = state["step"], state["elapsed"], state["best"]
        self.net.load_state_dict(state["net"])
        self.average.load_state_dict(state["average"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        if self.objective.balance is not None and state["balance"]:
            self.objective.balance.load_state_dict(state["balance"])


def _initial_weights(config: TrainConfig, net: nn.Module) -> dict[str, Tensor]:
    """Weights of ``init_from``, checked against the network."""
    weights = load(config.init_from).estimator.state_dict()
    own = net.state_dict()
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in own.items()}:
        raise ConfigError(f"init_from: the weights of {config.init_from} do not fit this network")
    return weights
