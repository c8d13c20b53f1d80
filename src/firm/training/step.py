"""Algorithm 1, one training step.

==== ============================================================================ =============================
line Algorithm 1                                                                  here
==== ============================================================================ =============================
2    x_1 ~ p_1,  x_0 ~ N(0, I),  t ~ U[t_min, t_max]                              `StepLoss`, `Velocity.loss`
3    eta ~ N(0, sigma^2 I),  y = A x_1 + eta                                      `Velocity.loss`
4    x_t = t x_1 + (1 - t) x_0,  tau_t = max(1 - t, tau_min)                      `firm._flow.velocity_error`
5    z = PostMean(x_t, t, y, A), which is Algorithm 3                             `firm._flow.velocity_error`
6, 7 v = (z - x_t) / tau_t,  v_target = (x_1 - x_t) / tau_t                       `firm._flow.velocity_error`
8    gradient of omega(t) |v - v_target|^2 (equation (23)), and an update         `firm._flow.weighted_loss`,
                                                                                  `Gradients`, `Trainer.advance`
==== ============================================================================ =============================

`firm.velocity_loss` calls the same two functions. Lines 1 and 9, the repetition, are `firm.training.loop`.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from firm._flow import Reduction, velocity_error, weighted_loss
from firm._model import Firm, Solver
from firm._util.machine import joined
from firm.acceleration.graphs import Recording
from firm.data.images import Images
from firm.evaluation import firm_method
from firm.networks import Estimator
from firm.tasks import Rows
from firm.training.objectives import Batch, ConfigError, Objective
from firm.training.validation import scored

if TYPE_CHECKING:
    from firm.training.config import TrainConfig
    from firm.training.feed import Feed


class Velocity(Objective):
    """FIRM's objective, E omega(t) |v - (x_1 - x_t) / tau|^2 (equation (23)), with Algorithm 3 inside v.

    The weights are the paper's omega(t), or with ``objective: balanced`` those of `TimeBalance`. With
    ``iterate_weights`` w each sample draws which iterate z^k of Algorithm 3 it supervises, and the error is on average
    sum_k w_k |v(z^k) - v_target|^2, see `firm._flow.velocity_error`.
    """

    kind = "firm"

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.weights = "balanced" if config.objective == "balanced" else "omega"
        self.solver = Solver(config.K, config.rho, config.beta, config.output)
        usual: Reduction = "sum" if config.objective == "paper" else "mean"
        self.reduction = usual if config.reduction == "auto" else config.reduction
        weights = config.iterate_weights  # the bounds are those between one depth and the next
        self.bounds = [sum(weights[:k]) / sum(weights) for k in range(1, len(weights))]

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute lines 2 to 7 of Algorithm 1, but for images and times; the warm start is one call on [A'y, x_t]."""
        op, y, sigma = batch.measure()
        x_0 = batch.randn()
        model, depths = Firm(net, dataclasses.replace(self.solver, K=0) if batch.warm else self.solver), None
        if self.config.iterate_weights and not batch.warm:
            u = batch.rand()
            depths = sum(((u >= bound).long() for bound in self.bounds), start=torch.ones_like(u, dtype=torch.long))
        error = velocity_error(
            model, op, batch.x_1, y, x_0, batch.t,
            sigma=sigma, tau_min=self.config.tau_min, reduction=self.reduction, depths=depths,
        )  # fmt: skip
        return error, batch.t

    def calls(self) -> int:
        """Count the network calls for one sample: K, with the solver on."""
        return max(self.solver.K, 1)

    def save(self, net: nn.Module, card: dict[str, Any], path: Path) -> None:
        """Write the model with the solver's settings; the card names the depths, numbers of iterations, it learned."""
        weights = self.config.iterate_weights
        depths = [k for k, w in enumerate(weights, 1) if w] or [self.solver.K]
        if isinstance(net, Estimator) and self.solver.K:
            net = copy.deepcopy(net)
            net.conditioning.extend(self.solver.K)  # a network that was taught five iterations can be asked for six
        Firm(net, self.solver, {**card, "depths": depths}).save(path)

    def validate(self, net: nn.Module, images: Images, picture: Path | None) -> dict[str, float]:
        """Score by the PSNR of the restored images, in every task, for every N of ``val_steps``."""
        model, c, device = Firm(net, self.solver), self.config, next(net.parameters()).device
        found: dict[str, float] = {}
        for N in c.val_steps:  # the picture shows the first of them
            found |= scored(firm_method(model, N), c, images, device, None if found else picture, f"psnr N={N}")
        return found


class TimeBalance(nn.Module):
    """Weights that make every part of the path count equally: 1 / (running mean of the error in its time bin).

    Used in place of omega(t) in `firm._flow.weighted_loss` ("balanced"). The mean should remember many batches: one
    over few samples follows the errors it divides, and large errors lose their weight (a variant that forgot quickly
    at first, and started anew with the solver, ended 2.5 dB lower after 300 steps at 16x16). The means are a buffer:
    saved, restored and moved with the training state.

    A sample counts for at most `limit` times its bin's mean, far above what tasks of one mixture differ by. Iterations
    that diverge can have errors of 1e20, for one batch; remembered, they would take the weight from their times for
    thousands of steps.

    Parameters
    ----------
    bins
        How many parts the times [0, 1] are divided into.
    decay, limit
        How much of a bin's mean is kept from one batch to the next, and the limit above.
    """

    error: Tensor

    def __init__(self, bins: int = 32, decay: float = 0.99, limit: float = 100.0) -> None:
        super().__init__()
        self.bins, self.decay, self.limit = bins, decay, limit
        self.register_buffer("error", torch.zeros(bins))

    def forward(self, t: Tensor, error: Tensor) -> Tensor:
        """Weigh samples at times `t` with errors `error`, all (B,); in training mode, learn from them first."""
        if self.training:
            self.learn(t, error)
        return 1 / self.error[self._bin(t)].clamp(min=1e-12)

    def learn(self, t: Tensor, error: Tensor) -> None:
        """Take the errors (B,) at times `t` (B,) of one batch into the running means, once for each optimizer step."""
        index = self._bin(t)
        error, known = error.detach().to(self.error.dtype), self.error[index]
        finite = error.isfinite()  # a broken sample must not spoil the means for good
        error = torch.where(known > 0, error.clamp(max=self.limit * known), error)
        member = (index[:, None] == torch.arange(self.bins, device=t.device)) & finite[:, None]  # (B, bins)
        member = member.to(self.error.dtype)
        sums = torch.stack([member.sum(0), torch.where(finite, error, 0) @ member])
        if joined():
            dist.all_reduce(sums)  # every rank learns from the whole batch
        count, mean = sums[0], sums[1] / sums[0].clamp(min=1)
        updated = torch.where(self.error > 0, self.error * self.decay + mean * (1 - self.decay), mean)
        self.error.copy_(torch.where(count > 0, updated, self.error))

    def mean_error(self) -> float:
        """Average the running error over the bins seen so far: it falls while the balanced loss stays near 1."""
        return float(self.error.sum() / (self.error > 0).sum().clamp(min=1))

    def _bin(self, t: Tensor) -> Tensor:
        return (t * self.bins).long().clamp(0, self.bins - 1)


class StepLoss(nn.Module):
    """Lines 2 to 8 of Algorithm 1 for one part of the batch, whatever the objective.

    All random numbers of the whole batch are drawn in every process, after the same seed, and each keeps its rows:
    the loss, averaged over the parts, does not depend on their number.
    """

    def __init__(self, config: TrainConfig, objective: Objective, net: nn.Module, feed: Feed, world: int) -> None:
        super().__init__()
        self.config, self.parts = config, world * config.accumulation_steps
        self.net = net
        self._called = _Recomputed(net) if config.recompute == "calls" else net
        self._objective, self._feed = objective, feed
        self.balance = TimeBalance() if objective.weights == "balanced" else None
        self.tasks = config.make_tasks() if objective.measures else []
        weights = [entry["weight"] for entry in config.tasks()] if objective.measures else [1.0]
        self.counts = _split_batch(weights, config.batch_size // self.parts)

    def forward(self, t: Tensor, part: int, warm: bool, read: Tensor | None = None) -> Tensor:
        """Compute the loss of part number `part`, from 0: a scalar.

        `t` are the times of the whole batch, (batch_size,), ordered by task; `warm` leaves the solver out; `read` are
        the stored values of the part's images where the set is not on the device.
        """
        error, times = self.errors(t, part, warm, read)
        weights = self._objective.weights if self.balance is None else self.balance
        assert weights != "balanced"  # that is `TimeBalance`
        return weighted_loss(error, times, weights, self.config.tau_min)

    def errors(self, t: Tensor, part: int, warm: bool, read: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute error and time of every sample of a part, both (B,): lines 2 to 7. Parameters as in `forward`."""
        rows, times, first = [Rows(n * self.parts, n * part, n * (part + 1)) for n in self.counts], [], 0
        for r in rows:
            times.append(t[first + r.start : first + r.stop])
            first += r.total
        x_1 = self._feed.draw(rows, read, t.device)
        if self.tasks:
            parts = x_1.split([len(r) for r in rows])
            x_1 = torch.cat([task.variant(x, r) for task, x, r in zip(self.tasks, parts, rows, strict=True)])
        batch = Batch(x_1, torch.cat(times), rows, self.tasks, warm)
        with torch.autocast(t.device.type, torch.bfloat16, enabled=self.config.bf16):
            return self._objective.loss(self._called, batch)


def _split_batch(weights: Sequence[float], batch_size: int) -> list[int]:
    """Share a batch among tasks: samples in proportion to the weights, at least one each, `batch_size` together."""
    n = len(weights)
    if batch_size < n:
        message = f"{batch_size} samples in each part of the batch cannot hold {n} tasks; take a larger batch_size"
        raise ConfigError(message)
    exact = [1 + w / sum(weights) * (batch_size - n) for w in weights]
    counts = [int(e) for e in exact]
    for i in sorted(range(n), key=lambda i: counts[i] - exact[i])[: batch_size - sum(counts)]:
        counts[i] += 1
    return counts


class _Recomputed(nn.Module):
    """A network whose activations are computed again in the backward pass (gradient checkpointing)."""

    def __init__(self, estimator: nn.Module) -> None:
        super().__init__()
        self.estimator = estimator
        self.config: dict[str, Any] = getattr(estimator, "config", {})

    def forward(self, *inputs: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.estimator, *inputs, use_reentrant=False)
        return out


class Gradients:
    """Forward and backward pass over this process's parts of the batch, which leaves the gradients in the parameters.

    Works everywhere; with several processes the gradients are averaged over them. `GraphedGradients` does the same as
    one CUDA graph.
    """

    seconds = 0.0  # that compiling and recording took: they do not count as training time

    def __init__(self, loss: StepLoss, params: list[nn.Parameter], rank: int = 0) -> None:
        self.loss, self.params, self.rank = loss, params, rank
        self.wrapped: nn.Module = loss
        several = loss.parts > loss.config.accumulation_steps
        if several and not loss.config.shard:  # else every block of the network sums its own
            known = inspect.signature(DistributedDataParallel.__init__).parameters
            option = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # before 2.13
            quiet: dict[str, Any] = {option: False}  # buffers are equal on all, and need no messages
            device = params[0].device
            self.wrapped = DistributedDataParallel(loss, [device.index] if device.type == "cuda" else None, **quiet)

    def __call__(self, t: Tensor, warm: bool, read: Tensor | None) -> Tensor:
        """Compute the loss at times `t` and its gradients; `warm` and `read` are those of `StepLoss`."""
        self.clear()
        seed, total = torch.initial_seed(), t.new_zeros(())
        count = self.loss.config.accumulation_steps
        parts = [None] * count if read is None else read.chunk(count)
        balance, found = self.loss.balance, []
        if balance is not None and count > 1:
            # Each part is weighted with means that have learned from all parts, as from a batch in one part: a forward
            # pass more, without gradients.
            with torch.no_grad(), _buffers_kept(self.loss.net):
                for k, part in enumerate(parts):
                    torch.manual_seed(seed)
                    found.append(self.loss.errors(t, self.rank * count + k, warm, part))
            balance.learn(torch.cat([times for _, times in found]), torch.cat([error for error, _ in found]))
            balance.eval()  # the parts themselves teach nothing more
        for k, part in enumerate(parts):
            torch.manual_seed(seed)  # every part draws the numbers of the whole batch
            shared = isinstance(self.wrapped, DistributedDataParallel) and k < count - 1
            # the processes exchange their gradients once, after the last part
            with self.wrapped.no_sync() if shared else contextlib.nullcontext():  # type: ignore[operator]
                value = self.wrapped(t, self.rank * count + k, warm, part) / count
                value.backward()
            total += value.detach()
        return total

    def clear(self) -> None:
        """Forget the gradients; a CUDA graph makes its own, and overwrites them in every replay."""
        for p in self.params:
            p.grad = None


class GraphedGradients(Gradients):
    """The same, recorded once as a CUDA graph and replayed. One GPU and one part only.

    The loss must not wait for the device.
    """

    def __init__(self, loss: StepLoss, params: list[nn.Parameter]) -> None:
        super().__init__(loss, params)
        self._recording: Recording[Tensor] | None = None
        self._warm: bool | None = None  # what was recorded

    def __call__(self, t: Tensor, warm: bool, read: Tensor | None) -> Tensor:
        """Replay; record first if this is the first step, or the first with the solver."""
        inputs = [t] if read is None else [t, read]
        if self._recording is None or self._warm != warm:
            seed, start = torch.initial_seed(), time.monotonic()
            self._recording, self._warm = None, warm  # frees the memory of the one before
            with _buffers_kept(self.loss):  # the trial runs do not count
                places = [v.clone() for v in inputs]
                self._recording = Recording(lambda: self._run(*places), places, trials=3, before=self.clear)
            torch.cuda.synchronize()
            self.seconds += time.monotonic() - start
            torch.manual_seed(seed)
        return self._recording(*inputs)

    def _run(self, t: Tensor, read: Tensor | None = None) -> Tensor:
        loss: Tensor = self.loss(t, 0, self._warm, read)
        loss.backward()
        return loss.detach()


@contextlib.contextmanager
def _buffers_kept(module: nn.Module) -> Iterator[None]:
    """Undo what happens inside to a module's buffers, such as running means."""
    kept = {key: value.clone() for key, value in module.named_buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for key, value in module.named_buffers():
                value.copy_(kept[key])
