"""The state of a training run, network, averaged network, optimizers and position; and one step of it."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn

from firm._flow import stratified_times
from firm._util.checks import generator_for
from firm._util.custom import CustomCodeError, custom_code, is_custom, require_operator
from firm._util.machine import Ranks, average, describe_machine, peak_megabytes
from firm.acceleration.compiled import compile_blocks
from firm.data.images import Images
from firm.operators import dot_test
from firm.operators.base import synchronizes
from firm.tasks import BaseTask, Rows
from firm.training.config import ConfigError, TrainConfig
from firm.training.feed import Feed
from firm.training.initial_weights import initial_weights
from firm.training.objectives import TrainingError
from firm.training.optimizer import Muon, make_optimizers
from firm.training.run_folder import check_state
from firm.training.sharded import gathered, local, split_like, split_moments, split_network, whole
from firm.training.step import Gradients, GraphedGradients, StepLoss

MOST_SKIPPED = 10  # steps in a row whose gradient is not finite, before giving up


class Trainer:
    """Network, averaged network, optimizers and position of a run; `state` and `restore` are its checkpoint.

    Parameters
    ----------
    config
        Everything that defines the run.
    ranks
        This process among all that train together.
    images
        The whole training set, (n, C, H, W).
    """

    def __init__(self, config: TrainConfig, ranks: Ranks, images: Images) -> None:
        if config.batch_size % (ranks.world * config.accumulation_steps):
            raise ConfigError(
                f"batch_size ({config.batch_size}) must be a multiple of processes x accumulation_steps "
                f"({ranks.world} x {config.accumulation_steps})"
            )
        self.config, self.ranks, self.complex, self.total_steps = config, ranks, images.complex, config.total_steps
        with custom_code(objective=config.objective_class, network=config.network_class()):
            self.objective = config.objective_class(config)
            torch.manual_seed(config.seed)
            self.net = self.objective.build()
        if config.init_from:
            self.net.load_state_dict(initial_weights(config.init_from, self.net, config.objective))
        self.average = copy.deepcopy(self.net).to(ranks.device).requires_grad_(False).eval()
        self.sharded = config.shard and ranks.world > 1
        self.saved = copy.deepcopy(self.average) if self.sharded and ranks.main else self.average  # see `gather`
        _prepare(self.net, config, ranks.device, self.sharded)
        if self.sharded:
            for net in (self.net, self.average):
                split_network(net, ranks)
        self.params = list(self.net.parameters())
        self.feed = Feed(config, images, ranks)
        self.loss = StepLoss(config, self.objective, self.net, self.feed, ranks.world).to(ranks.device)
        self.fused = config.fused and not self.sharded
        self.optimizers = make_optimizers(dataclasses.replace(config, fused=self.fused), self.net)
        slow = [task.name for task in self.loss.tasks if _check_operator(task, config.channels, ranks.device)]
        graph = config.cuda_graph and ranks.device.type == "cuda" and self.loss.parts == 1
        self.gradients = (
            GraphedGradients(self.loss, self.params)
            if graph and config.recompute != "calls" and not slow
            else Gradients(self.loss, self.params, ranks.rank)
        )
        self.step, self.elapsed, self.best = 0, 0.0, -math.inf
        self.skipped = torch.zeros((), device=ranks.device)  # steps in a row whose gradient was not finite
        self._events: list[torch.cuda.Event] = []
        self._times: tuple[int, Tensor] = (-1, torch.empty(0))

    @property
    def progress(self) -> float:
        """Return the share of the run that is done: of the steps, or of the minutes."""
        c = self.config
        return min(1.0, self.elapsed / (60 * c.max_minutes) if c.max_minutes else self.step / self.total_steps)

    def _before(self, epoch: int) -> bool:
        """Tell whether the run has not reached this epoch (with max_minutes: this share of the minutes)."""
        c = self.config
        return self.progress < epoch / c.epochs if c.max_minutes else self.step < epoch * c.steps_per_epoch

    def lr(self) -> float:
        """Compute the learning rate: linear warm-up, then a cosine from `lr` to `lr_end`."""
        c = self.config
        cosine = c.lr_end + (c.lr - c.lr_end) * (1 + math.cos(math.pi * self.progress)) / 2
        return cosine * min(1.0, (self.step + 1) / max(1, c.warmup_steps))

    def times(self) -> Tensor:
        """Return the batch's times t (B,), drawn for a whole epoch at once: strata are covered across batches."""
        c = self.config
        epoch, position = divmod(self.step, c.steps_per_epoch)
        if self._times[0] != epoch:
            generator = generator_for(c.seed, epoch, "times")
            drawn = stratified_times(
                c.steps_per_epoch * c.batch_size, strata=c.strata, t_min=c.t_min, t_max=c.t_max, generator=generator
            )
            self._times = (epoch, drawn.reshape(c.steps_per_epoch, c.batch_size))
        return self._times[1][position].to(self.ranks.device)

    def advance(self) -> tuple[Tensor, Tensor]:
        """Take one step of Algorithm 1, with the gradient's norm clipped and the weights averaged (EMA).

        All randomness follows from the seed and the step.

        Returns
        -------
        Loss and norm of the gradient, scalars on the device.
        """
        c = self.config
        torch.manual_seed(generator_for(c.seed, self.step, "step").initial_seed())
        read = None if self.feed.resident is not None else self.feed.ahead(self.step, self.loss.counts)
        loss = self.gradients(self.times(), self._before(c.warm_start_epochs), read)
        norm = whole(nn.utils.clip_grad_norm_(self.params, c.clip_grad_norm))
        self._update(norm)
        self._average()
        self.step += 1
        if self.ranks.device.type == "cuda":
            # The CPU runs at most two steps ahead of the GPU: enough to hide its work, and clocks stay true.
            event = torch.cuda.Event()
            event.record()
            self._events.append(event)
            if len(self._events) > 2:
                self._events.pop(0).synchronize()
        return loss, norm

    def _update(self, norm: Tensor) -> None:
        """Take the optimizer's step, unless the gradient is not finite. Decided on the device: nothing waits for it."""
        bad = (~norm.isfinite()).float()
        self.skipped = (self.skipped + bad) * bad
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.lr()
            if self.fused or isinstance(optimizer, Muon):
                optimizer.found_inf = bad  # type: ignore[attr-defined]  # the step is skipped where this is 1
                optimizer.step()
            elif not bad.item():
                optimizer.step()

    @torch.no_grad()
    def _average(self) -> None:
        """Bring the averaged network nearer to the trained one; it is a copy until the average begins."""
        for target, source in zip(self.average.buffers(), self.net.buffers(), strict=True):
            target.copy_(source)  # running means, as of batch normalization, are averages already
        targets, sources = ([local(p) for p in params] for params in (self.average.parameters(), self.params))
        if self._before(self.config.ema_from_epoch):
            torch._foreach_copy_(targets, sources)
        else:
            torch._foreach_lerp_(targets, sources, 1 - self.config.ema_decay)

    def check_finite(self) -> None:
        """Raise if the last steps were all skipped, or the weights are broken; waits for the device."""
        if self.skipped.item() >= MOST_SKIPPED:
            raise TrainingError(
                f"the gradient was not finite in {int(self.skipped)} steps in a row, last at step {self.step}: "
                "lower the lr, switch bf16 off, or start again from an earlier checkpoint"
            )
        weights: list[Tensor] = [local(p) for p in (*self.params, *self.average.parameters())]
        if not torch.stack(torch._foreach_norm(weights)).isfinite().all():
            raise TrainingError(
                f"the weights are not finite at step {self.step}: nothing more is saved. Lower the lr; "
                "or give the same command again, which goes on from the last checkpoint"
            )

    def numbers(self, losses: list[Tensor], norm: Tensor, step: int, elapsed: float) -> dict[str, Any]:
        """Collect what the log says of the steps since `step`, taken at `elapsed` seconds; waits for the device.

        `losses` are theirs, scalars, and `norm` is the last one's norm of the gradient. All ranks must ask together.
        """
        speed = (self.step - step) * self.config.batch_size / max(1e-9, self.elapsed - elapsed)
        mean = average(torch.stack(losses).mean()).item()  # each rank has its part of the batch
        row = {
            "step": self.step, "loss": mean, "norm": norm.item(), "lr": self.lr(), "images/s": round(speed, 1),
            "minutes": round(self.elapsed / 60, 3), "peak_mb": peak_megabytes(self.ranks.device),
            "skipped": int(self.skipped),
        }  # fmt: skip
        return row if self.loss.balance is None else {**row, "error": self.loss.balance.mean_error()}

    def card(self) -> dict[str, Any]:
        """Say what the model was trained for, and how; saved with it."""
        c = self.config
        return {  # an objective that does not measure has no tasks
            "trained_for": [_card_entry(entry, task) for entry, task in zip(c.tasks(), self.loss.tasks, strict=False)],
            "objective": c.objective, "data": c.dataset, "size": c.size,
            "channels": c.channels, "complex": self.complex, "value_range": list(c.value_range),
            "batch_size": c.batch_size, "steps": self.step, "minutes": round(self.elapsed / 60, 2),
            "machine": describe_machine(),
        }  # fmt: skip

    def gather(self) -> None:
        """Bring what is saved and validated up to date, where weights are split; all processes must ask together."""
        if self.sharded:
            state = gathered(self.average.state_dict())
            if self.ranks.main:
                self.saved.load_state_dict(state)

    def save(self, path: Path) -> None:
        """Write the model with the averaged weights, as it is validated."""
        with self.custom_code():
            self.objective.save(self.saved, self.card(), path)

    def is_saved(self, path: Path) -> bool:
        """Tell whether the model in a file is that of this step, to the bit."""
        now = self.saved.state_dict()
        # what cannot be read is not there, damaged, or written in a way of its own
        with suppress(Exception), safetensors.safe_open(path, framework="pt") as file:
            saved = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
            return (
                json.loads(file.metadata()["firm"])["card"]["steps"] == self.step
                and saved.keys() == now.keys()
                and all(torch.equal(saved[key], value.cpu().to(saved[key].dtype)) for key, value in now.items())
            )
        return False

    def validate(self, images: Images, picture: Path | None) -> dict[str, float]:
        """Score the averaged weights on held-out images, as the objective does; and draw its picture."""
        with self.custom_code():
            return self.objective.validate(self.saved, images, picture)

    def custom_code(self) -> AbstractContextManager[None]:
        """Let errors of custom objectives, networks and operators name the user's file and line."""
        tasks = [type(task) for task in self.loss.tasks]
        return custom_code(objective=type(self.objective), network=type(self.net), task=tasks)

    def state(self) -> dict[str, Any]:
        """Collect everything needed to go on from here; the random numbers follow from seed and step.

        It is whole, also where weights are split: all processes must then ask together.
        """
        state: dict[str, Any] = gathered(self._state())
        return state

    def _state(self) -> dict[str, Any]:
        return {
            "network": self.config.network_about(),
            "step": self.step,
            "elapsed": self.elapsed,
            "best": self.best,
            "net": self.net.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "balance": self.loss.balance.state_dict() if self.loss.balance is not None else {},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a checkpoint; ValueError, and nothing changed, if it does not fit this run."""
        check_state(state, self._state(), self.optimizers)
        self.step, self.elapsed, self.best = state["step"], state["elapsed"], state["best"]
        for net, key in ((self.net, "net"), (self.average, "average")):
            net.load_state_dict(split_like(state[key], net.state_dict()))
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(split_moments(saved, optimizer))
        if self.loss.balance is not None:
            self.loss.balance.load_state_dict(state["balance"])


def _prepare(net: nn.Module, config: TrainConfig, device: torch.device, sharded: bool) -> None:
    """Move the network to the device, in the memory layout and with the compiled blocks that the configuration asks.

    Weights that will be split stay in rows, and blocks as they are.
    """
    net.to(device)
    if sharded:
        return
    if config.channels_last:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = not config.deterministic
        if config.compile:
            compile_blocks(net, lean=config.recompute == "pointwise")


def _card_entry(entry: dict[str, Any], task: BaseTask) -> dict[str, Any]:
    """Complete an entry for the model's card: of a custom task with its defaults, since a card runs no code.

    The library knows the defaults of its own tasks; settings that are no degradation count only where they are given.
    """
    if not is_custom(str(entry["name"])):
        return entry
    values = {key: value for key, value in task.settings().items() if task.parameters[key].option or key in entry}
    values |= {key: list(ends) for key, ends in task.ranges.items()}
    return {**entry, **values, "name": entry["name"], "weight": entry["weight"]}


def _check_operator(task: BaseTask, channels: int, device: torch.device) -> bool:
    """Tell whether solving with the task's operator waits for the device, and refuse a wrong adjoint.

    The operator of validation is made too: what it refuses shall not wait for the end of the run.
    """
    try:
        with custom_code(task=type(task)):
            require_operator(task, task.operator(), "operator")
            op = task.draw_operator(Rows(1, 0, 1), device)
            require_operator(task, op, "draw_operator")
            dot_test(op, (1, channels, *task.shape), device=device)
    except (ValueError, RuntimeError) as error:
        place = "" if isinstance(error, CustomCodeError) else f"the task {task.name}: "  # names its place
        raise ConfigError(f"{place}{error}") from error
    return synchronizes(op)
