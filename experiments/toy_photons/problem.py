"""The toy problem with photon noise: the prior of `experiments.toy`, and a count of photons in place of u + noise.

x = (u, v) follows four equally likely Gaussians at (+-1.5, +-1.5); k photons are counted, with the mean (u + OFFSET) /
GAIN: about 3 or 9. A count of 5 or 6 leaves open which of the two it was, so p(u | k) has two modes of unequal weight,
neither of them Gaussian. u and v are independent in the prior, and remain so, which makes all exact on a line.
"""

import torch
from torch import Generator, Tensor

from experiments.toy.problem import MEANS, STD
from experiments.toy.problem import operator as operator
from experiments.toy.problem import sample_prior as sample_prior
from firm.noise import Poisson
from firm.operators import LinearOperator
from firm.operators.base import per_sample

GAIN, OFFSET = 0.5, 3.0
NOISE = Poisson(GAIN, torch.tensor([[OFFSET, 0.0]]))  # the second coordinate collects no light
LINE = torch.linspace(-2.9, 4, 1381, dtype=torch.float64)  # u and v; below -OFFSET there are no intensities


def measure(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw y = GAIN k - OFFSET, (n, 2); the second entry is 0."""
    return NOISE.draw(operator().A(x), generator)


def measurement(k: int) -> Tensor:
    """The measurement y of `k` photons, (2,)."""
    return torch.tensor([GAIN * k - OFFSET, 0.0])


def log_prior() -> Tensor:
    """The logarithm of the density of u, which is also that of v, on the `LINE`, up to a constant."""
    modes = MEANS[:, 0].unique().double()
    return torch.logsumexp(-((LINE[:, None] - modes) / STD).square() / 2, 1)


def log_posterior(y: Tensor, coordinate: int) -> Tensor:
    """The logarithm of p(u | y), or of p(v | y) = p(v), on the `LINE`, up to a constant, for `y` (..., 2)."""
    counts = (y[..., :1].double() + OFFSET) / GAIN
    rate = (LINE + OFFSET) / GAIN
    return log_prior() + (counts * rate.log() - rate if coordinate == 0 else torch.zeros_like(counts))


class ExactField:
    """The exact E[x_1 | x_t, y], by sums over a line; takes the place of a model in `firm.sample`."""

    def posterior_mean(
        self, op: LinearOperator, x_t: Tensor, t: float | Tensor, y: Tensor, **settings: object
    ) -> Tensor:
        """E[x_1 | x_t, y], (B, 2): x_t is a measurement of x_1 with independent noise of N(0, (1 - t)^2)."""
        t, found = per_sample(t, x_t), []
        for i in (0, 1):
            seen = ((x_t[:, i : i + 1] - t * LINE) / (1 - t)).square() / 2
            weight = (log_posterior(y, i) - seen).softmax(-1)
            found.append(weight @ LINE)
        return torch.stack(found, 1).to(x_t.dtype)


def wasserstein(samples: Tensor, y: Tensor, coordinate: int) -> float:
    """W1 between samples (n,) of one coordinate and its exact posterior: the area between the two CDFs."""
    cdf = log_posterior(y, coordinate).softmax(-1).flatten().cumsum(0)
    empirical = torch.searchsorted(samples.double().sort().values, LINE, right=True) / len(samples)
    outside = (samples.double() - samples.double().clamp(float(LINE[0]), float(LINE[-1]))).abs().mean()
    return float(torch.trapezoid((empirical - cdf).abs(), LINE) + outside)
