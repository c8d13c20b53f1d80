"""One step of Algorithm 1 on the device: draw images, measurements, noise and times; loss and gradients."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from firm._flow import velocity_loss
from firm._model import Firm, Solver
from firm.acceleration.compiled import compile_blocks
from firm.data.picture import to_tensor
from firm.training.balance import TimeBalance
from firm.training.config import TrainConfig
from firm.training.measurements import Rows, TrainTask, measure, split_batch


class Objective(nn.Module):
    """Lines 2 to 8 of Algorithm 1 for one part of the batch.

    All random numbers of the whole batch are drawn in every process, after the same seed, and each keeps its rows:
    the loss, averaged over the parts, does not depend on their number.
    """

    def __init__(self, config: TrainConfig, estimator: nn.Module, pixels: Tensor, parts: int) -> None:
        super().__init__()
        self.config, self.parts = config, parts
        self.estimator = estimator
        called = Recomputed(estimator) if config.recompute == "calls" else estimator
        solver = Solver(config.K, config.rho, config.beta, config.output)
        # In a tuple, so that the estimator is registered once.
        self._models = (Firm(called, Solver(K=0, output=config.output)), Firm(called, solver))
        self.balance = TimeBalance() if config.objective == "balanced" else None
        self._pixels = pixels  # uint8 (n, C, H, W), on the device
        self.tasks = [TrainTask.make(entry, config.size, config.mask) for entry in config.tasks()]
        self.counts = split_batch([entry["weight"] for entry in config.tasks()], config.batch // parts)

    def forward(self, t: Tensor, part: int, warm: bool) -> Tensor:
        """The loss of part number `part`; `t` holds the times of the whole batch, (batch,)."""
        c, device = self.config, t.device
        rows = [Rows(n * self.parts, n * part, n * (part + 1)) for n in self.counts]
        first = 0
        images, times = [], []
        for r in rows:
            index = (r.rand(device=device) * len(self._pixels)).long().clamp(max=len(self._pixels) - 1)
            x = to_tensor(self._pixels[index])  # with replacement
            mirror = r.rand(1, 1, 1, device=device) < 0.5
            images.append(torch.where(mirror, x.flip(-1), x) if c.flips else x)
            times.append(t[first + r.start : first + r.stop])
            first += r.total
        x_1 = torch.cat(images)
        op, y, sigma = measure(self.tasks, x_1, rows)
        x_0 = torch.cat([r.randn(*x_1.shape[1:], device=device) for r in rows])
        with torch.autocast(device.type, torch.bfloat16, enabled=c.bf16):
            return velocity_loss(
                self._models[0 if warm else 1], op, x_1, y, x_0, torch.cat(times),
                sigma=sigma, tau_min=c.tau_min, balance=self.balance,
            )  # fmt: skip


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


Step = Callable[[Tensor, bool], Tensor]  # (times of the batch, warm start?) to the loss; leaves gradients


def eager_step(objective: nn.Module, params: list[nn.Parameter], accumulate: int, rank: int) -> Step:
    """Forward and backward pass over the parts of this rank; works everywhere."""

    def step(t: Tensor, warm: bool) -> Tensor:
        for p in params:
            p.grad = None
        seed = torch.initial_seed()
        total = t.new_zeros(())
        for k in range(accumulate):
            torch.manual_seed(seed)  # every part draws the numbers of the whole batch
            with _quiet(objective) if k < accumulate - 1 else contextlib.nullcontext():
                loss = objective(t, rank * accumulate + k, warm) / accumulate
                loss.backward()
            total += loss.detach()
        return total

    return step


def _quiet(objective: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Hold the ranks' exchange of gradients back until the last part."""
    return objective.no_sync() if isinstance(objective, DistributedDataParallel) else contextlib.nullcontext()


class GraphedStep:
    """Forward and backward pass recorded once as a CUDA graph and replayed: no launch overhead. One GPU only."""

    def __init__(self, objective: Objective, params: list[nn.Parameter], batch: int) -> None:
        self.objective, self.params = objective, params
        self.t = torch.full((batch,), 0.5, device=params[0].device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm: bool | None = None  # what the graph was recorded for
        self.recording = 0.0  # seconds spent on compiling and recording

    def __call__(self, t: Tensor, warm: bool) -> Tensor:
        """Replay; record first if this is the first step, or the first with the solver."""
        self.t.copy_(t)
        if self.graph is None or self.warm != warm:
            seed, start = torch.initial_seed(), time.monotonic()
            self._record(warm)
            torch.cuda.synchronize()
            self.recording += time.monotonic() - start
            torch.manual_seed(seed)
        assert self.graph is not None
        self.graph.replay()
        return self.loss

    def _run(self, warm: bool) -> Tensor:
        loss: Tensor = self.objective(self.t, 0, warm)
        loss.backward()
        return loss.detach()

    def _record(self, warm: bool) -> None:
        self.graph = None  # frees the memory of the one before
        balance = {k: v.clone() for k, v in self.objective.state_dict().items() if k.startswith("balance")}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # compile and choose algorithms before recording
                for p in self.params:
                    p.grad = None
                self._run(warm)
        torch.cuda.current_stream().wait_stream(stream)
        for p in self.params:
            p.grad = None  # the graph makes its own, and overwrites them in every replay
        self.graph, self.warm = torch.cuda.CUDAGraph(), warm
        with torch.cuda.graph(self.graph):
            self.loss = self._run(warm)
        self.objective.load_state_dict(balance, strict=False)  # the trial runs do not count
