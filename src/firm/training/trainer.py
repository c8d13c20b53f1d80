"""The state of a training run: network, averaged network, optimizers, position; and one step of it."""

from __future__ import annotations

import copy
import inspect
import json
import math
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from firm._flow import stratified_times
from firm._model import load_network
from firm._util.custom import CustomCodeError, custom_code, require_operator
from firm._util.distributed import Ranks
from firm._util.finite import finite
from firm._util.machine import describe_machine
from firm._util.seeds import generator_for
from firm.acceleration.graphs import GraphedStep
from firm.data.images import Images
from firm.networks import NETWORKS, Estimator, ResUNet
from firm.networks.estimator import OneImage
from firm.operators import dot_test
from firm.operators.base import synchronizes
from firm.tasks import BaseTask, Rows
from firm.training.checkpoint import check_state
from firm.training.config import ConfigError, TrainConfig
from firm.training.errors import TrainingError
from firm.training.feed import Feed
from firm.training.growth import deepened, grown, narrowed
from firm.training.measurements import resolved
from firm.training.objectives import objective_class
from firm.training.optimizer import Muon, make_optimizers
from firm.training.step import Gradients, PartLoss, eager_step, prepare

PATIENCE = 10  # steps in a row whose gradient is not finite, before giving up


class Trainer:
    """Network, averaged network, optimizer and position of a run; `state` and `restore` are its checkpoint."""

    def __init__(self, config: TrainConfig, ranks: Ranks, images: Images) -> None:
        if config.batch % (ranks.world * config.accumulate):
            raise ConfigError(
                f"batch ({config.batch}) must be a multiple of processes x accumulate "
                f"({ranks.world} x {config.accumulate})"
            )
        self.config, self.ranks, self.complex = config, ranks, images.complex
        kind = objective_class(config.objective)
        with custom_code(objective=kind, network=config.network_class()):
            self.objective = kind(config)
            torch.manual_seed(config.seed)
            self.net = self.objective.build()
        if config.init_from:
            self.net.load_state_dict(_initial_weights(config, self.net))
        self.average = copy.deepcopy(self.net).to(ranks.device).requires_grad_(False).eval()
        prepare(self.net, config, ranks.device)
        self.params = list(self.net.parameters())
        self.feed = Feed(config, images, ranks)
        parts = ranks.world * config.accumulate
        self.loss = PartLoss(config, self.objective, self.net, self.feed, parts).to(ranks.device)
        self.optimizers = make_optimizers(config, self.net)
        self.gradients = self._step_function()
        self.step, self.elapsed, self.best = 0, 0.0, -math.inf
        self.skipped = torch.zeros((), device=ranks.device)  # steps in a row whose gradient was not finite
        self._events: list[torch.cuda.Event] = []
        self._times: tuple[int, Tensor] = (-1, torch.empty(0))

    def _step_function(self) -> Gradients:
        c, r = self.config, self.ranks
        slow = [task.name for task in self.loss.tasks if _check_operator(task, c.channels, r.device)]
        graph = (
            c.cuda_graph and r.device.type == "cuda" and r.world == 1 and c.accumulate == 1 and c.recompute != "calls"
        )
        if graph and not slow:
            return GraphedStep(self.loss, self.params, c.batch)
        wrapped: nn.Module = self.loss
        if r.world > 1:
            wrapped = _shared(self.loss, r.device)
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
        """One optimizer step; returns loss and gradient norm. All randomness follows from the seed and the step."""
        c = self.config
        warm = self._before(c.warm_epochs)
        torch.manual_seed(generator_for(c.seed, self.step, "step").initial_seed())
        times, read = self.times(), self.feed.ahead(self.step, self.loss.counts)
        with self._custom_code():
            loss = self.gradients(times, warm, read)
        norm = nn.utils.clip_grad_norm_(self.params, c.clip)
        self._update(norm)
        targets: list[Tensor] = list(self.average.parameters())
        sources: list[Tensor] = list(self.params)
        with torch.no_grad():
            for target, source in zip(self.average.buffers(), self.net.buffers(), strict=True):
                target.copy_(source)  # running means, as of batch normalization, are averages already
            if self._before(c.ema_from_epoch):
                torch._foreach_copy_(targets, sources)
            else:
                torch._foreach_lerp_(targets, sources, 1 - c.ema_decay)
        self.step += 1
        self._keep_pace()
        return loss, norm

    def _update(self, norm: Tensor) -> None:
        """Take the optimizer's step, unless the gradient is not finite. Decided on the device: nothing waits for it."""
        bad = (~norm.isfinite()).float()
        self.skipped = (self.skipped + bad) * bad
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate()
            if self.config.fused or isinstance(optimizer, Muon):
                optimizer.found_inf = bad  # type: ignore[attr-defined]  # the step is skipped where this is 1
                optimizer.step()
            elif not bad.item():
                optimizer.step()

    def check_finite(self) -> None:
        """Raise if the last steps were all skipped, or the weights are broken; waits for the device."""
        if self.skipped.item() >= PATIENCE:
            raise TrainingError(
                f"the gradient was not finite in {int(self.skipped)} steps in a row, last at step {self.step}: "
                "lower the rate, switch bf16 off, or start again from an earlier checkpoint"
            )
        weights: list[Tensor] = [*self.params, *self.average.parameters()]
        if not bool(torch.stack(torch._foreach_norm(weights)).isfinite().all()):
            raise TrainingError(
                f"the weights are not finite at step {self.step}: nothing more is saved. Lower the rate; "
                "or give the same command again, which goes on from the last checkpoint"
            )

    def _keep_pace(self) -> None:
        """Let the CPU run at most two steps ahead of the GPU: enough to hide its work, and clocks stay true."""
        if self.ranks.device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self._events.append(event)
            if len(self._events) > 2:
                self._events.pop(0).synchronize()

    def card(self) -> dict[str, Any]:
        """What the model was trained for, and how; saved with it."""
        c = self.config
        tasks = self.loss.tasks  # none where the objective does not measure
        return {
            "trained_for": [resolved(e, task) for e, task in zip(c.tasks(), tasks, strict=True)] if tasks else [],
            "objective": c.objective, "data": c.dataset, "size": c.size,
            "channels": c.channels, "complex": self.complex, "value_range": list(c.value_range),
            "batch": c.batch, "steps": self.step, "minutes": round(self.elapsed / 60, 2), "machine": describe_machine(),
        }  # fmt: skip

    def save(self, path: Path) -> None:
        """Write the model with the averaged weights, as it is validated."""
        with self._custom_code():
            self.objective.save(self.average, self.card(), path)

    def is_saved(self, path: Path) -> bool:
        """Whether the model in a file is that of this step, to the bit."""
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                step = json.loads(file.metadata()["firm"])["card"]["steps"]
                saved = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        except Exception:  # not there, damaged, or written in a way of its own
            return False
        own = self.average.state_dict()
        return (
            bool(step == self.step)
            and saved.keys() == own.keys()
            and all(torch.equal(saved[key], value.cpu().to(saved[key].dtype)) for key, value in own.items())
        )

    def validate(self, images: Images, picture: Path | None) -> dict[str, float]:
        """The objective's scores of the averaged weights on held-out images."""
        with self._custom_code():
            return self.objective.validate(self.average, images, picture)

    def _custom_code(self) -> AbstractContextManager[None]:
        """Errors of the user's own objective, network and operators are told as theirs."""
        tasks = [type(task) for task in self.loss.tasks]
        return custom_code(objective=type(self.objective), network=type(self.net), task=tasks)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on from here; the random numbers follow from seed and step."""
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
        check_state(state, self.state(), self.optimizers)
        self.step, self.elapsed, self.best = state["step"], state["elapsed"], state["best"]
        self.net.load_state_dict(state["net"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if self.loss.balance is not None and state["balance"]:
            self.loss.balance.load_state_dict(state["balance"])


def _shared(loss: nn.Module, device: torch.device) -> nn.Module:
    """The loss with gradients averaged over the ranks; its buffers are equal on all of them, and need no messages."""
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    option = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # the name before 2.13
    quiet: dict[str, Any] = {option: False}
    return DistributedDataParallel(loss, device_ids=[device.index] if device.type == "cuda" else None, **quiet)


def _check_operator(task: BaseTask, channels: int, device: torch.device) -> bool:
    """Whether solving with the task's operator waits for the device; a wrong adjoint is refused before training."""
    try:
        with custom_code(task=type(task)):
            # validation's: what it refuses shall not wait for the end of the run
            require_operator(task, task.operator(), "operator")
            op = task.draw_operator(Rows(1, 0, 1), device)
            require_operator(task, op, "draw_operator")
            dot_test(op, (1, channels, *task.shape), device=device)
    except CustomCodeError as error:
        raise ConfigError(str(error)) from error
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"the task {task.name}: {error}") from error
    return synchronizes(op)


def _initial_weights(config: TrainConfig, net: nn.Module) -> dict[str, Tensor]:
    """Weights of ``init_from``, checked against the network."""
    estimator = None if type(net) in NETWORKS.values() else copy.deepcopy(net)  # a file cannot build the user's own
    try:
        loaded = load_network(config.init_from, estimator)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ConfigError(f"init_from: {error}") from error
    weights, own = loaded.state_dict(), net.state_dict()
    if isinstance(loaded, Estimator) and isinstance(net, Estimator):
        _check_alike(loaded, net, config.init_from, config.objective)
        if isinstance(net, OneImage) and not isinstance(loaded, OneImage):
            weights = narrowed(weights, own, loaded.images)
        if isinstance(loaded, ResUNet) and isinstance(net, ResUNet):
            weights = deepened(weights, own, loaded, net)
    weights = grown(weights, own)
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in own.items()}:
        raise ConfigError(f"init_from: the weights of {config.init_from} do not fit this network")
    if any(not finite(value) and finite(own[key]) for key, value in weights.items()):
        raise ConfigError(f"init_from: {config.init_from} has weights that are NaN or infinite")
    return weights


def _check_alike(loaded: Estimator, net: Estimator, name: str, objective: str) -> None:
    """Refuse weights whose shapes fit, but which mean something else in this network."""
    state = objective == "bridge" and isinstance(loaded, OneImage)  # a bridge sees its state first
    if type(loaded).images != type(net).images and not isinstance(net, OneImage) and not state:
        raise ConfigError(f"init_from: {name} has a {type(loaded).__name__}, which sees other images")
    for key in ("time_scale", "groups"):
        was, now = (n.config.get(key) for n in (loaded, net))
        if was != now:
            raise ConfigError(f"init_from: {name} was trained with network.{key}={was}, not {now}")
    was, now = (n.config.get("extra", ()) for n in (loaded, net))
    if "context" in was and "previous" in now and "previous" not in was:
        raise ConfigError(f"init_from: {name} sees the context, and cannot be given the previous iterate as well")
