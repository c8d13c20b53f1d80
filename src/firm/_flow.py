"""The linear path, its time scale and weights, stratified times, and the loss of Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from firm._posterior_mean import PosteriorMean
from firm.operators.base import LinearOperator, per_sample

T_MIN, T_MAX, TAU_MIN = 1e-3, 0.995, 0.1  # Table 7, "Hyperparameters"


def interpolate(x_0: Tensor, x_1: Tensor, t: float | Tensor) -> Tensor:
    """The path x_t = (1 - t) x_0 + t x_1 (equation (8)); `t` is a float or (B,)."""
    t = per_sample(t, x_1)
    return (1 - t) * x_0 + t * x_1


def tau(t: Tensor, tau_min: float = TAU_MIN) -> Tensor:
    """The stabilized time scale tau_t = max(1 - t, tau_min) (equation (21))."""
    return (1 - t).clamp(min=tau_min)


def omega(t: Tensor, tau_min: float = TAU_MIN) -> Tensor:
    """The paper's weight omega(t) = (1 + tau^3) / tau (equation (23))."""
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


Weights = Callable[[Tensor, Tensor], Tensor]  # times (B,) and errors (B,) to the weights of the samples, (B,)


def velocity_error(
    model: PosteriorMean,
    op: LinearOperator,
    x_1: Tensor,
    y: Tensor,
    x_0: Tensor,
    t: Tensor,
    *,
    sigma: float | Tensor | None = None,
    tau_min: float = TAU_MIN,
) -> Tensor:
    """Lines 4 to 7 of Algorithm 1: the squared error of each sample's velocity, (B,).

    It is averaged over the entries of an image, where the paper sums, so that clipping does not depend on its size.
    """
    x_t = interpolate(x_0, x_1, t)
    z = model.posterior_mean(op, x_t, t, y, sigma=sigma, check=False)
    scale = per_sample(tau(t, tau_min), x_t)
    v, v_target = (z - x_t) / scale, (x_1 - x_t) / scale
    return (v - v_target).square().flatten(1).mean(1)


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
    balance: Weights | None = None,
) -> Tensor:
    """Lines 4 to 8 of Algorithm 1: the weighted flow-matching loss (equation (23)), a scalar.

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
        Weights in place of the paper's omega(t): a `firm.TimeBalance`.
    """
    error = velocity_error(model, op, x_1, y, x_0, t, sigma=sigma, tau_min=tau_min)
    weight = omega(t, tau_min) if balance is None else balance(t, error)
    return (weight * error).mean()
