"""A two-dimensional problem whose posterior is known (Appendix "Posterior recovery on a toy problem").

x = (u, v) follows four equally likely Gaussians at (+-1.5, +-1.5); only u is measured, so p(v | y) has two modes with
the posterior mean in the empty valley between them. Everything FIRM approximates is exact here.
"""

import math

import torch
from torch import Generator, Tensor

from firm.operators import LinearOperator, Mask
from firm.operators.base import per_sample

MEANS = torch.tensor([[1.5, 1.5], [1.5, -1.5], [-1.5, 1.5], [-1.5, -1.5]])  # mu_j
STD = 0.2  # of each Gaussian
SIGMA = 0.1  # of the measurement noise
NOISE = None  # Gaussian of one level: the solver needs no model of it
VALLEY = 0.75  # |v| < 0.75 holds almost no posterior mass


def operator() -> Mask:
    """A = diag(1, 0): the first coordinate is seen."""
    return Mask(torch.tensor([1.0, 0.0]))


def sample_prior(n: int, generator: Generator | None = None) -> Tensor:
    """Draw `n` points of the mixture, (n, 2)."""
    component = torch.randint(len(MEANS), (n,), generator=generator)
    return MEANS[component] + STD * torch.randn(n, 2, generator=generator)


def measure(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw y = A x + noise, (n, 2); the second entry is noise alone."""
    return operator().A(x) + SIGMA * torch.randn(x.shape, generator=generator).to(x)


class ExactField:
    """The exact E[x_1 | x_t, y], its covariance and the exact posterior; takes the place of a model in `firm.sample`.

    With M_t = t^2/(1-t)^2 I + A'A/sigma^2 (equation (33)) and h = t/(1-t)^2 x_t + A'y/sigma^2, component j
    of p(x_1 | x_t, y) is Gaussian with precision P = I/s^2 + M_t, mean m_j = P^-1 (mu_j/s^2 + h) and weight
    proportional to exp((m_j' P m_j - |mu_j|^2/s^2) / 2). All matrices are diagonal. At t = 0 this is p(x_1 | y).
    """

    def components(self, op: LinearOperator, x_t: Tensor, t: float | Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Weights (B, 4), means (B, 4, 2) and variances (B, 1, 2) of p(x_1 | x_t, y)."""
        t, mu = per_sample(t, x_t), MEANS.to(x_t)
        AtA = op.A_adjoint(op.A(torch.ones_like(x_t)))  # the diagonal of A'A
        P = (1 / STD**2 + t**2 / (1 - t) ** 2 + AtA / SIGMA**2)[:, None]
        h = t / (1 - t) ** 2 * x_t + op.A_adjoint(y) / SIGMA**2
        m = (mu / STD**2 + h[:, None]) / P
        log_weight = ((P * m.square()).sum(-1) - mu.square().sum(-1) / STD**2) / 2
        return log_weight.softmax(-1), m, 1 / P

    def posterior_mean(
        self, op: LinearOperator, x_t: Tensor, t: float | Tensor, y: Tensor, **settings: object
    ) -> Tensor:
        """E[x_1 | x_t, y], (B, 2); `firm.sample` may give settings, which an exact mean has no use for."""
        weight, m, _ = self.components(op, x_t, t, y)
        return (weight[..., None] * m).sum(1)

    def covariance(self, op: LinearOperator, x_t: Tensor, t: float | Tensor, y: Tensor) -> Tensor:
        """Cov(x_1 | x_t, y), (B, 2, 2)."""
        weight, m, variance = self.components(op, x_t, t, y)
        centered = m - (weight[..., None] * m).sum(1, keepdim=True)
        return torch.einsum("bj,bjk,bjl->bkl", weight, centered, centered) + torch.diag_embed(variance[:, 0])

    def velocity(self, op: LinearOperator, x_t: Tensor, t: float | Tensor, y: Tensor) -> Tensor:
        """The exact velocity (equation (14))."""
        return (self.posterior_mean(op, x_t, t, y) - x_t) / (1 - per_sample(t, x_t))


def posterior(y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (4,), means (4, 2) and standard deviations (2,) of p(x | y) for one measurement `y`, (2,)."""
    weight, m, variance = ExactField().components(operator().to(y.device), torch.zeros_like(y)[None], 0.0, y[None])
    return weight[0], m[0], variance[0, 0].sqrt()


def sample_posterior(y: Tensor, n: int, generator: Generator | None = None) -> Tensor:
    """Draw `n` exact samples of p(x | y), (n, 2)."""
    weight, m, std = posterior(y)
    component = torch.multinomial(weight, n, replacement=True, generator=generator)
    return m[component] + std * torch.randn(n, 2, generator=generator).to(y)


def density(points: Tensor, y: Tensor) -> Tensor:
    """p(x | y) at `points` (..., 2)."""
    weight, m, std = posterior(y)
    exponent = ((points[..., None, :] - m) / std).square().sum(-1) / 2
    return (weight * torch.exp(-exponent)).sum(-1) / (2 * math.pi * std.prod())


def marginal_cdf(values: Tensor, y: Tensor, coordinate: int) -> Tensor:
    """P(x[coordinate] <= value | y) at `values`, any shape."""
    weight, m, std = posterior(y)
    return (weight * torch.special.ndtr((values[..., None] - m[:, coordinate]) / std[coordinate])).sum(-1)


def wasserstein(samples: Tensor, y: Tensor, coordinate: int) -> float:
    """W1 between samples (n,) of one coordinate and its exact marginal: the area between the two CDFs."""
    grid = torch.linspace(-6, 6, 24_001, dtype=torch.float64)
    empirical = torch.searchsorted(samples.double().sort().values, grid, right=True) / len(samples)
    return float(torch.trapezoid((empirical - marginal_cdf(grid, y.double(), coordinate)).abs(), grid))
