"""The linear path, its time scale and weights, stratified times, and the loss of Algorithm 1."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Generator, Tensor, nn

from firm.distributed import joined
from firm.operators.base import LinearOperator, per_sample
from firm.sampling import PosteriorMean

T_MIN, T_MAX, TAU_MIN = 1e-3, 0.995, 0.1  # Table "Hyperparameters"


def interpolate(x_0: Tensor, x_1: Tensor, t: float | Tensor) -> Tensor:
    """The path x_t = (1 - t) x_0 + t x_1 (eq. linear_path); `t` is a float or (B,)."""
    t = per_sample(t, x_1)
    return (1 - t) * x_0 + t * x_1


def tau(t: Tensor, tau_min: float = TAU_MIN) -> Tensor:
    """The stabilised time scale tau_t = max(1 - t, tau_min)."""
    return (1 - t).clamp(min=tau_min)


def omega(t: Tensor, tau_min: float = TAU_MIN) -> Tensor:
    """The paper's weight omega(t) = (1 + tau^3) / tau (eq. velocity_loss)."""
    scale = tau(t, tau_min)
    return (1 + scale**3) / scale


def stratified_times(
    n: int,
    *,
    strata: int = 64,
    t_min: float = T_MIN,
    t_max: float = T_MAX,
    generator: Generator | None = None,
) -> Tensor:
    """`n` times in [t_min, t_max], each run of `strata` consecutive ones with one in every stratum, shuffled.

    Draw the times of many batches at once and slice them, and the strata are covered across batches too.
    """
    if n < 1 or strata < 1 or not 0 <= t_min < t_max < 1:
        raise ValueError(
            f"stratified_times: need n, strata >= 1 and 0 <= t_min < t_max < 1, got {n}, {strata}, {t_min}, {t_max}"
        )
    runs = -(-n // strata)
    order = torch.rand(runs, strata, generator=generator).argsort(dim=1).flatten()[:n]
    position = (order + torch.rand(n, generator=generator)) / strata
    return t_min + (t_max - t_min) * position


class TimeBalance(nn.Module):
    """Weights that make every part of the path count alike: 1 / (running mean of the error in its time bin).

    Used in place of `omega` in `velocity_loss` ("balanced"). The mean should remember many batches: one over few
    samples follows the errors it divides, and large errors lose their weight (a variant that forgot quickly at first,
    and started anew with the solver, ended 2.5 dB lower after 300 steps at 16x16). The means are a buffer: saved,
    restored and moved with the training state.
    """

    error: Tensor

    def __init__(self, bins: int = 32, decay: float = 0.99) -> None:
        super().__init__()
        self.bins, self.decay = bins, decay
        self.register_buffer("error", torch.zeros(bins))

    def forward(self, t: Tensor, error: Tensor) -> Tensor:
        """Weights (B,) for samples at times `t` with errors `error`, both (B,); in training mode, learn from them."""
        index = (t * self.bins).long().clamp(0, self.bins - 1)
        if self.training:
            finite = error.detach().isfinite()  # a broken sample must not spoil the means for good
            member = (index[:, None] == torch.arange(self.bins, device=t.device)) & finite[:, None]  # (B, bins)
            member = member.to(self.error.dtype)
            sums = torch.stack([member.sum(0), torch.where(finite, error.detach(), 0).to(member.dtype) @ member])
            if joined():
                dist.all_reduce(sums)  # every rank learns from the whole batch
            count, mean = sums[0], sums[1] / sums[0].clamp(min=1)
            updated = torch.where(self.error > 0, self.error * self.decay + mean * (1 - self.decay), mean)
            self.error.copy_(torch.where(count > 0, updated, self.error))
        return 1 / self.error[index].clamp(min=1e-12)

    def mean_error(self) -> float:
        """The running error, averaged over the bins seen so far: what falls while the balanced loss stays at 1."""
        return float(self.error.sum() / (self.error > 0).sum().clamp(min=1))


def velocity_loss(
    model: PosteriorMean,
    op: LinearOperator,
    x_1: Tensor,
    y: Tensor,
    x_0: Tensor,
    t: Tensor,
    *,
    sigma: float | Tensor | None = None,
    tau_min: float = TAU_MIN,
    balance: TimeBalance | None = None,
) -> Tensor:
    """Lines 4 to 8 of Algorithm 1: the weighted flow-matching loss (eq. velocity_loss), a scalar.

    The squared error is averaged over the entries of an image, not summed, so that clipping does not depend on
    its size.

    Parameters
    ----------
    model
        What is trained: a `Firm`, or anything with its ``posterior_mean`` method.
    op, y, sigma
        Operator, measurements of `x_1`, and their noise level where the network takes it.
    x_1, x_0
        Clean images and Gaussian noise, (B, ...).
    t
        Times, (B,), see `stratified_times`.
    tau_min
        Floor of the time scale.
    balance
        Weigh by the running error of each time bin instead of the paper's omega(t).
    """
    x_t = interpolate(x_0, x_1, t)
    z = model.posterior_mean(op, x_t, t, y, sigma=sigma, check=False)
    scale = per_sample(tau(t, tau_min), x_t)
    v, v_target = (z - x_t) / scale, (x_1 - x_t) / scale
    error = (v - v_target).square().flatten(1).mean(1)
    weight = omega(t, tau_min) if balance is None else balance(t, error)
    return (weight * error).mean()
