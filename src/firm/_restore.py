"""Posterior samples of a measurement, with their mean and standard deviation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from firm._model import Firm
from firm._posterior_mean import Sigma
from firm._prepare import Prepared, prepare
from firm._sampling import Integrator, Quality, at_quality, draws, integrate
from firm._util.checks import counted, is_whole, require_seed, warn
from firm.operators.base import LinearOperator

SAME_NOISE, ENOUGH = 0.1, 1000  # correlation of y with the starting noise, and how many values tell (0.03 by chance)
FAR = 2.0  # root mean square of A x - y in units of the noise, beyond which an image contradicts its measurements
AT_ONCE = 32 * 128 * 128  # pixels: samples are drawn in batches of about this size, so that memory stays bounded


class MisfitWarning(UserWarning):
    """An image contradicts the measurements that it was restored from."""


@dataclass(frozen=True)
class Restoration:
    """Posterior samples of a batch of measurements, with their statistics and what they cost; `restore` returns it."""

    image: Tensor  # (B, C, H, W), the first sample; of least misfit where several images have the same measurement
    mean: Tensor  # (B, C, H, W), mean of the samples
    std: Tensor | None  # (B, C, H, W), their standard deviation; None for a single sample
    samples: Tensor  # (S, B, C, H, W); (0, B, C, H, W) if they were not kept
    nfe: int  # network calls for each image of y, all samples together
    seconds: float
    residual: Tensor | None = None  # (B,), root mean square of A x - y for `image`, in units of the noise

    def __repr__(self) -> str:
        """Show shapes, not pixels."""
        drawn = counted(len(self.samples), "sample") if len(self.samples) else "samples not kept"
        calls = counted(self.nfe, "network call")
        fit = "" if self.residual is None else f", residual {float(self.residual.mean()):.2f} sigma"
        return f"Restoration(image {tuple(self.image.shape)}, {drawn}, {calls}, {self.seconds:.2f} s{fit})"


def restore(
    model: Firm, op: LinearOperator, y: Tensor, steps: int | None = None, samples: int = 1, seed: int = 0, *,
    iterations: int | None = None, quality: Quality | None = None, sigma: Sigma = None,
    integrator: Integrator = "euler", final_solve: bool = False, keep: bool = True,
    on_sample: Callable[[int, Tensor], None] | None = None,
) -> Restoration:  # fmt: skip
    """Draw posterior samples from `seed`, with their mean and standard deviation. More samples keep the first ones.

    Several samples go through the network together. Their starting noise is drawn one after the other, so it does not
    depend on how many there are. Input and result are checked as in `sample`, on a GPU after all work is queued; a
    warning says if sigma is larger than any image, if y was simulated with the noise that `seed` draws, or if the image
    contradicts its measurements.

    Parameters
    ----------
    model, op, y, steps, iterations, quality, sigma, integrator
        As in `sample`.
    samples, seed
        How many to draw, and from which starting noise: a whole number from 0 to 2^32 - 1.
    final_solve
        Bring every sample as close to y as its noise says, by one more data-consistency step whose rho is found by
        Morozov's discrepancy principle. It helps where the data are precise and the model is not made for them.
    keep
        If false, the samples are not kept: mean and standard deviation are updated as they are drawn, and memory does
        not grow with their number.
    on_sample
        Called with (i, x) for every sample, i = 0, 1, ...: x (B, C, H, W). Its time does not count.
    """
    if not is_whole(samples, 1):
        raise ValueError(f"restore: samples must be a whole number of at least 1, got {samples!r}")
    generator = Generator().manual_seed(require_seed(seed))
    model, steps = at_quality(model, quality, steps, iterations)
    start, away = time.perf_counter(), 0.0
    given = prepare(model, op, y, sigma)
    _check_scale(given)
    Aty = given.Aty
    drawn: list[Tensor] = []
    spread, first = _Spread(), 0
    chosen = _LeastMisfit(op, given.y) if getattr(op, "ambiguous", False) else None
    for n in batches(Aty, samples):
        starts = [[given.start(generator) for _ in range(draws(integrator, steps))] for _ in range(n)]
        x_0 = torch.cat([noise for of_step in zip(*starts, strict=True) for noise in of_step])
        if first == 0:
            check_seed(given, x_0, seed)
        runs = given.runs(n)
        x = integrate(given.model, runs.op, runs.y, x_0, steps, sigma=runs.noise, integrator=integrator)
        given.check_result(x)
        if on_sample is not None:
            given.settle()  # nobody is shown what is not finite
        for i, copies in enumerate(x.split(len(x) // n), start=first):
            one = given.together(copies)
            one = given.fitted(one) if final_solve else one
            if chosen is not None:
                chosen.add(one)
            if keep:
                drawn.append(one)
            else:
                spread.add(one)
            if on_sample is not None:
                left = time.perf_counter()
                on_sample(i, one)
                away += time.perf_counter() - left
        first += n
    stacked = torch.stack(drawn) if keep else Aty.new_empty(0, *Aty.shape)
    several = keep and samples > 1
    image, mean = (stacked[0], stacked.mean(0)) if keep else (spread.first, spread.mean)
    image = image if chosen is None else chosen.image
    std = stacked.std(0) if several else None if keep else spread.std()
    residual = given.residual(image)
    _check_fit(given, residual)
    given.settle()  # on a GPU it waits for the last image
    nfe = samples * model.calls(steps, integrator)
    return Restoration(image, mean, std, stacked, nfe, time.perf_counter() - start - away, residual)


def _check_scale(given: Prepared) -> None:
    """Warn where the noise level is above all that a linear A can measure."""
    if given.norm is None or given.sigma is None:
        return
    norm, sigma = given.norm, given.sigma

    def judge(size: float, level: float) -> None:
        if size > 0 and level > 2 * size:
            warn(
                f"sigma {level:.3g} is more than images in [-1, 1] can measure: it is the noise level of y for such "
                "images (25 of 255 is 2 * 25 / 255)"
            )

    given.check(lambda: torch.stack([norm.max().to(sigma), sigma.max()]), judge)


def _check_fit(given: Prepared, residual: Tensor | None) -> None:
    """Warn where an image contradicts its measurements."""
    if residual is None:
        return

    def judge(worst: float) -> None:
        if worst > FAR:
            warn(
                f"A x differs from y by {worst:.1f} times the noise level: the image contradicts its measurements; "
                "final_solve=True brings it back to them, if A and sigma are right",
                MisfitWarning,
            )

    given.check(lambda: residual.nan_to_num(0).max()[None], judge)


def check_seed(given: Prepared, x_0: Tensor, seed: int) -> None:
    """Warn where the noise of y is the starting noise `x_0`: numbers of one seed, which FIRM takes as independent."""
    y, values = given.y, min(given.y.numel(), x_0.numel())
    if values < ENOUGH or y.is_complex():
        return

    def numbers() -> Tensor:
        a, b = (v.flatten()[:values].float() for v in (y, x_0))
        return F.cosine_similarity(a - a.mean(), b - b.mean(), dim=0)[None]

    def judge(found: float) -> None:
        if found > SAME_NOISE:
            warn(
                f"y resembles the noise that seed={seed} starts from (correlation {found:.2f}): it seems to be "
                "simulated with the same seed, and the result will be worse than it should; pass another seed"
            )

    given.check(numbers, judge)


def batches(like: Tensor, samples: int) -> list[int]:
    """Split a number of samples of images `like` (B, C, H, W) into batches that go through the network together.

    Returns the number of samples of each batch.
    """
    size = max(1, AT_ONCE // (len(like) * like[0, 0].numel()))
    return [min(size, samples - first) for first in range(0, samples, size)]


class _LeastMisfit:
    """The sample x of least |A(x) - y|, for each image by itself."""

    def __init__(self, op: LinearOperator, y: Tensor) -> None:
        self.op, self.y = op, y
        self.image = self.least = torch.empty(0)

    def add(self, x: Tensor) -> None:
        """Take in one more sample, (B, C, H, W)."""
        misfit = (self.op.A(x) - self.y).abs().square().flatten(1).sum(1).reshape(-1, *[1] * (x.ndim - 1))
        if not len(self.image):
            self.image, self.least = x, misfit
        self.image = torch.where(misfit < self.least, x, self.image)
        self.least = torch.minimum(misfit, self.least)


class _Spread:
    """Mean and standard deviation of samples that are seen one after the other (Welford's update)."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, x: Tensor) -> None:
        """Take in one more sample, (B, C, H, W)."""
        self.n += 1
        if self.n == 1:  # copies: x is a part of a batch; `squares` sums the squared distances from the mean
            self.first, self.mean, self.squares = x.clone(), x.clone(), torch.zeros_like(x)
            return
        before = x - self.mean
        self.mean.add_(before, alpha=1 / self.n)
        self.squares.addcmul_(before, x - self.mean)

    def std(self) -> Tensor | None:
        """Return the standard deviation, with n - 1 as torch's; None for a single sample."""
        return None if self.n < 2 else (self.squares / (self.n - 1)).sqrt_()
