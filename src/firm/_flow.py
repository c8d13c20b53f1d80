"""The linear path, its time scale and weights, stratified times, and the loss of Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Generator, Tensor

from firm._posterior_mean import PosteriorMean, Sigma
from firm._util.checks import require
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
    n: int, *, strata: int = 64, t_min: float = T_MIN, t_max: float = T_MAX, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """`n` times in [t_min, t_max], each run of `strata` consecutive ones with one in every stratum, shuffled.

    Draw the times of many batches at once and slice them, and the strata are covered across batches too.
    """
    require(
        n >= 1 and strata >= 1 and 0 <= t_min < t_max < 1,
        f"stratified_times: need n, strata >= 1 and 0 <= t_min < t_max < 1, got {n}, {strata}, {t_min}, {t_max}",
    )
    runs = -(-n // strata)
    order = torch.rand(runs, strata, generator=generator).argsort(dim=1).flatten()[:n]
    position = (order + torch.rand(n, generator=generator)) / strata
    return t_min + (t_max - t_min) * position


Weights = Literal["omega", "uniform"] | Callable[[Tensor, Tensor], Tensor]  # a callable takes (t, error), both (B,)
Reduction = Literal["mean", "sum"]


def velocity_error(
    model: PosteriorMean, op: LinearOperator, x_1: Tensor, y: Tensor, x_0: Tensor, t: Tensor, *,
    sigma: Sigma = None, tau_min: float = TAU_MIN, reduction: Reduction = "mean",
    depths: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Lines 4 to 7 of Algorithm 1: the squared error |v - (x_1 - x_t) / tau|^2 of every sample's velocity, (B,).

    The paper compares the velocity of the last iterate, z^K. With `depths`, (B,), each sample's is that of its own
    iterate z^k, and its gradient passes through the k-th iteration alone. Drawn with probabilities w_k, the error is on
    average sum_k w_k |v(z^k) - v_target|^2: every iterate learns to be an image, so that the number of iterations can
    be chosen when restoring, at the cost of one backward pass through the network instead of K.

    See `velocity_loss` for the parameters; `weighted_loss` makes one number of the errors.
    """
    x_t = interpolate(x_0, x_1, t)
    which = {} if depths is None else {"depths": depths}
    z = model.posterior_mean(op, x_t, t, y, sigma=sigma, **which)
    scale = per_sample(tau(t, tau_min), x_t)
    v, v_target = (z - x_t) / scale, (x_1 - x_t) / scale
    squares = (v - v_target).square().flatten(1)
    return squares.sum(1) if reduction == "sum" else squares.mean(1)


def weighted_loss(error: Tensor, t: Tensor, weights: Weights = "omega", tau_min: float = TAU_MIN) -> Tensor:
    """Line 8 of Algorithm 1: the mean of the samples' errors (B,) at times `t` (B,), weighted; a scalar.

    Training calls exactly this function, whatever its objective.

    Parameters
    ----------
    error, t
        Error and time of every sample, (B,), as from `velocity_error`.
    weights
        "omega" is the paper's omega(t) (equation (23)), "uniform" weighs all samples alike, and a callable such as
        `firm.TimeBalance` returns weights (B,) from (t, error).
    tau_min
        Floor of the time scale in omega(t).
    """
    if callable(weights):
        return (weights(t, error) * error).mean()
    return (omega(t, tau_min) * error).mean() if weights == "omega" else error.mean()


def velocity_loss(
    model: PosteriorMean, op: LinearOperator, x_1: Tensor, y: Tensor, x_0: Tensor, t: Tensor, *,
    sigma: Sigma = None, tau_min: float = TAU_MIN, weights: Weights = "omega",
    reduction: Reduction = "mean", depths: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Lines 4 to 8 of Algorithm 1: the weighted flow-matching loss (equation (23)), a scalar.

    Parameters
    ----------
    model
        What is trained: a `Firm`, or anything with its ``posterior_mean`` method.
    op, y, sigma
        Operator, measurements of `x_1`, and their noise level where the network takes it, or a model of their noise.
    x_1, x_0
        Clean images and Gaussian noise, (B, ...).
    t
        Times, (B,), see `stratified_times`.
    tau_min
        Floor of the time scale.
    weights
        How the samples are weighted, see `weighted_loss`.
    reduction
        "sum" adds the squares of an image's pixels, as the paper does; "mean" averages them, so that clipping the
        gradient's norm does not depend on the size of the images.
    depths
        Which iterate is compared in each sample, (B,) whole numbers from 1 to K, see `velocity_error`; None, as in the
        paper, compares the last.
    """
    error = velocity_error(model, op, x_1, y, x_0, t, sigma=sigma, tau_min=tau_min, reduction=reduction, depths=depths)
    return weighted_loss(error, t, weights, tau_min)
