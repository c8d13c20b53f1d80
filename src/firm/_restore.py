"""Posterior samples of a measurement, with their mean and standard deviation."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from firm._model import Firm
from firm._posterior_mean import vector
from firm._sampling import Method, as_measurement, check_noise_level, noise_like, sample
from firm.operators.base import LinearOperator
from firm.operators.repeated import repeated

AT_ONCE = 32 * 128 * 128  # pixels: samples are drawn in batches of about this size, so that memory stays bounded


@dataclass(frozen=True)
class Restoration:
    """What `restore` returns."""

    image: Tensor  # (B, C, H, W), the first sample
    mean: Tensor  # (B, C, H, W), mean of the samples
    std: Tensor | None  # (B, C, H, W), their standard deviation; None for a single sample
    samples: Tensor  # (S, B, C, H, W)
    nfe: int  # network calls in all, each on one image
    seconds: float


def restore(
    model: Firm,
    op: LinearOperator,
    y: Tensor,
    steps: int = 2,
    samples: int = 1,
    seed: int = 0,
    *,
    sigma: float | Tensor | None = None,
    method: Method = "euler",
) -> Restoration:
    """Draw posterior samples from `seed`, with their mean and standard deviation. More samples keep the first ones.

    Several samples go through the network together. Their starting noise is drawn one after the other, so it does not
    depend on how many there are. Measurements, noise level and result are checked as in `sample`.
    """
    if samples < 1:
        raise ValueError(f"restore: samples must be at least 1, got {samples}")
    y = as_measurement(model, y)
    check_noise_level(sigma)
    start = time.perf_counter()
    generator = Generator().manual_seed(seed)
    like = op.A_adjoint(y)
    size = max(1, AT_ONCE // (len(like) * like[0, 0].numel()))
    drawn = []
    for first in range(0, samples, size):
        n = min(size, samples - first)
        x_0 = torch.cat([noise_like(like, generator) for _ in range(n)])
        many = y.repeat(n, *[1] * (y.ndim - 1))
        level = None if sigma is None else vector(sigma, like).repeat(n)
        x = sample(model, repeated(op, len(like)), many, steps, sigma=level, method=method, x_0=x_0)
        drawn += list(x.split(len(like)))
    if like.is_cuda:
        torch.cuda.synchronize(like.device)
    stacked = torch.stack(drawn)
    return Restoration(
        image=stacked[0],
        mean=stacked.mean(0),
        std=stacked.std(0) if samples > 1 else None,
        samples=stacked,
        nfe=samples * model.calls(steps, method),
        seconds=time.perf_counter() - start,
    )
