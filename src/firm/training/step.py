"""Algorithm 1, one step on the device: draw images, measurements, noise and times; loss and gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from firm._flow import omega
from firm.acceleration.compiled import compile_blocks
from firm.tasks import Rows
from firm.training.balance import TimeBalance
from firm.training.batch import Batch
from firm.training.config import TrainConfig
from firm.training.feed import Feed
from firm.training.measurements import split_batch
from firm.training.objectives import Objective


class PartLoss(nn.Module):
    """Lines 2 to 8 of Algorithm 1 for one part of the batch, whatever the objective.

    All random numbers of the whole batch are drawn in every process, after the same seed, and each keeps its rows:
    the loss, averaged over the parts, does not depend on their number.
    """

    def __init__(self, config: TrainConfig, objective: Objective, net: nn.Module, feed: Feed, parts: int) -> None:
        super().__init__()
        self.config, self.parts = config, parts
        self.net = net
        self._called = Recomputed(net) if config.recompute == "calls" else net
        self._objective, self._feed = objective, feed
        self.balance = TimeBalance() if objective.weights == "balanced" else None
        self.tasks = config.make_tasks() if objective.measures else []
        weights = [entry["weight"] for entry in config.tasks()] if objective.measures else [1.0]
        self.counts = split_batch(weights, config.batch // parts)

    def forward(self, t: Tensor, part: int, warm: bool, read: Tensor | None = None) -> Tensor:
        """The loss of part number `part`; `t` holds the times of the whole batch, (batch,).

        `read` are the stored values of its images, where the set is not on the device.
        """
        rows = [Rows(n * self.parts, n * part, n * (part + 1)) for n in self.counts]
        times, first = [], 0
        for r in rows:
            times.append(t[first + r.start : first + r.stop])
            first += r.total
        x_1 = self._feed.draw(rows, read, t.device)
        batch = Batch(x_1, torch.cat(times), rows, self.tasks, warm)
        with torch.autocast(t.device.type, torch.bfloat16, enabled=self.config.bf16):
            error, times_of = self._objective.loss(self._called, batch)
        return (self._weights(times_of, error) * error).mean()

    def _weights(self, t: Tensor, error: Tensor) -> Tensor:
        if self.balance is not None:
            weights: Tensor = self.balance(t, error)
            return weights
        return omega(t, self.config.tau_min) if self._objective.weights == "omega" else torch.ones_like(error)


class Recomputed(nn.Module):
    """An estimator whose activations are computed again in the backward pass (gradient checkpointing)."""

    def __init__(self, estimator: nn.Module) -> None:
        super().__init__()
        self.estimator = estimator
        self.config: dict[str, Any] = getattr(estimator, "config", {})

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the estimator."""
        out: Tensor = checkpoint(self.estimator, *inputs, use_reentrant=False)
        return out


def prepare(net: nn.Module, config: TrainConfig, device: torch.device) -> nn.Module:
    """Move the network to the device, in the memory layout and with the compiled blocks that the configuration asks."""
    net = net.to(device)
    if config.channels_last:
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = not config.deterministic
        if config.compile:
            compile_blocks(net, lean=config.recompute == "pointwise")
    return net


Gradients = Callable[[Tensor, bool, Tensor | None], Tensor]  # (times, warm start?, images read) to the loss


def eager_step(loss: nn.Module, params: list[nn.Parameter], accumulate: int, rank: int) -> Gradients:
    """Forward and backward pass over the parts of this rank; works everywhere. Leaves gradients."""

    def step(t: Tensor, warm: bool, read: Tensor | None) -> Tensor:
        for p in params:
            p.grad = None
        seed = torch.initial_seed()
        total = t.new_zeros(())
        parts = [None] * accumulate if read is None else read.chunk(accumulate)
        for k in range(accumulate):
            torch.manual_seed(seed)  # every part draws the numbers of the whole batch
            with _quiet(loss) if k < accumulate - 1 else contextlib.nullcontext():
                value = loss(t, rank * accumulate + k, warm, parts[k]) / accumulate
                value.backward()
            total += value.detach()
        return total

    return step


def _quiet(loss: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Hold the ranks' exchange of gradients back until the last part."""
    return loss.no_sync() if isinstance(loss, DistributedDataParallel) else contextlib.nullcontext()
