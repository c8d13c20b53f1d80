"""Posterior samples of a measurement, with their mean and standard deviation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from firm._model import Firm
from firm._posterior_mean import vector
from firm._sampling import Method, as_measurement, check_noise_level, noise_like, require_count, require_real, sample
from firm._util.text import counted
from firm.operators.base import LinearOperator, require_operator
from firm.operators.repeated import repeated
from firm.operators.scale import warn_of_scale

SAME_NOISE, ENOUGH = 0.1, 1000  # correlation of y with the starting noise, and how many values tell (0.03 by chance)
AT_ONCE = 32 * 128 * 128  # pixels: samples are drawn in batches of about this size, so that memory stays bounded


@dataclass(frozen=True)
class Restoration:
    """What `restore` returns."""

    image: Tensor  # (B, C, H, W), the first sample
    mean: Tensor  # (B, C, H, W), mean of the samples
    std: Tensor | None  # (B, C, H, W), their standard deviation; None for a single sample
    samples: Tensor  # (S, B, C, H, W); (0, B, C, H, W) if they were not kept
    nfe: int  # network calls for each image of y, all samples together
    seconds: float

    def __repr__(self) -> str:
        """Shapes, not pixels."""
        drawn = counted(len(self.samples), "sample") if len(self.samples) else "samples not kept"
        calls = counted(self.nfe, "network call")
        return f"Restoration(image {tuple(self.image.shape)}, {drawn}, {calls}, {self.seconds:.2f} s)"


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
    keep: bool = True,
    on_sample: Callable[[int, Tensor], None] | None = None,
) -> Restoration:
    """Draw posterior samples from `seed`, with their mean and standard deviation. More samples keep the first ones.

    Several samples go through the network together. Their starting noise is drawn one after the other, so it does not
    depend on how many there are. Measurements, noise level and result are checked as in `sample`; a warning says if the
    norm of A is far from 1, sigma is larger than any image, or y was simulated with the noise that `seed` draws.

    Parameters
    ----------
    model, op, y, steps, sigma, method
        As in `sample`.
    samples, seed
        How many to draw, and from which starting noise.
    keep
        If false, the samples are not kept: mean and standard deviation are updated as they are drawn, and memory does
        not grow with their number.
    on_sample
        Called with (i, x) for every sample, i = 0, 1, ...: x (B, C, H, W). Its time does not count.
    """
    require_count("restore: samples", samples)
    if not hasattr(seed, "__index__"):
        raise ValueError(f"restore: seed must be a whole number, got {seed!r}")
    require_operator(op)
    y = as_measurement(model, y)
    check_noise_level(sigma)
    start = time.perf_counter()
    generator = Generator().manual_seed(seed)
    like = op.A_adjoint(y)
    require_real(op, like)
    warn_of_scale(op, like, sigma)
    drawn: list[Tensor] = []
    spread, away, first = _Spread(), 0.0, 0
    for n in batches(like, samples):
        x_0 = torch.cat([noise_like(like, generator) for _ in range(n)])
        if first == 0:
            warn_of_seed(y, x_0, seed)
        many = y.repeat(n, *[1] * (y.ndim - 1))
        level = None if sigma is None else vector(sigma, like).repeat(n)
        x = sample(model, repeated(op, len(like)), many, steps, sigma=level, method=method, x_0=x_0)
        if like.is_cuda:
            torch.cuda.synchronize(like.device)
        for i, one in enumerate(x.split(len(like)), start=first):
            if keep:
                drawn.append(one)
            else:
                spread.add(one)
            if on_sample is not None:
                left = time.perf_counter()
                on_sample(i, one)
                away += time.perf_counter() - left
        first += n
    nfe = samples * model.calls(steps, method)
    if not keep:
        seconds = time.perf_counter() - start - away
        return Restoration(spread.first, spread.mean, spread.std(), like.new_empty(0, *like.shape), nfe, seconds)
    stacked = torch.stack(drawn)
    return Restoration(
        image=stacked[0],
        mean=stacked.mean(0),
        std=stacked.std(0) if samples > 1 else None,
        samples=stacked,
        nfe=nfe,
        seconds=time.perf_counter() - start - away,
    )


def warn_of_seed(y: Tensor, x_0: Tensor, seed: int) -> None:
    """Warn where the noise of `y` is the starting noise `x_0`: numbers of one seed, which FIRM takes as independent."""
    values = min(y.numel(), x_0.numel())
    if values < ENOUGH or y.is_complex():
        return
    a, b = (v.flatten()[:values].float() for v in (y, x_0))
    found = float(F.cosine_similarity(a - a.mean(), b - b.mean(), dim=0))
    if found > SAME_NOISE:
        warnings.warn(
            f"y resembles the noise that seed={seed} starts from (correlation {found:.2f}): it seems to be simulated "
            "with the same seed, and the result will be worse than it should; pass another seed",
            stacklevel=3,
        )


def batches(like: Tensor, samples: int) -> list[int]:
    """How many samples of images `like` (B, C, H, W) go through the network together, one number a batch."""
    size = max(1, AT_ONCE // (len(like) * like[0, 0].numel()))
    return [min(size, samples - first) for first in range(0, samples, size)]


class _Spread:
    """Mean and standard deviation of samples that are seen one after the other (Welford's update)."""

    first: Tensor
    mean: Tensor
    squares: Tensor  # sum of the squared distances from the mean

    def __init__(self) -> None:
        self.n = 0

    def add(self, x: Tensor) -> None:
        """One more sample."""
        self.n += 1
        if self.n == 1:
            self.first = x.clone()  # of its own: x is a part of a batch
            self.mean = self.first
            return
        if self.n == 2:
            self.mean, self.squares = self.first.clone(), torch.zeros_like(x)
        before = x - self.mean
        self.mean.add_(before, alpha=1 / self.n)
        self.squares.addcmul_(before, x - self.mean)

    def std(self) -> Tensor | None:
        """With n - 1, as torch's; None for a single sample."""
        return None if self.n < 2 else (self.squares / (self.n - 1)).sqrt_()
