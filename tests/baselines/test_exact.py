"""The methods on Gaussian images N(m, c I), where the flow and the posterior are known exactly."""

import pytest
import torch
from helpers import dense, relative_error

from firm.baselines import as_denoiser, diffpir, flower, ot_ode, pnp_flow, pnp_hqs
from firm.baselines._common import clean
from firm.baselines._diffpir import _noise_levels
from firm.operators import Blur
from flow_helpers import Gaussian, operator_on

SIDE = 4
PIXELS = SIDE**2
NAMES = ("identity", "mask", "blur", "subsample")


def matrix(op):
    return dense(op, (1, SIDE, SIDE), 1)[0]


def images(batch=1, seed=0):
    return torch.randn(batch, 1, SIDE, SIDE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def minimum(op, y, precision, m=0.0):
    """argmin |A u - y|^2 / 2 + precision |u - m|^2 / 2, and the inverse of its Hessian."""
    A = matrix(op)
    inverse = torch.linalg.inv(A.T @ A + precision * torch.eye(PIXELS, dtype=torch.float64))
    right = y.flatten(1) @ A + precision * m
    return (right @ inverse).reshape(-1, 1, SIDE, SIDE), inverse


@pytest.fixture
def no_noise(monkeypatch):
    """All draws are 0. The results are affine in the noise, so what comes out is their mean."""
    for name in ("flower", "ot_ode", "pnp_flow", "diffpir"):
        monkeypatch.setattr(f"firm.baselines._{name}.noise_source", lambda x, generator: lambda: torch.zeros_like(x))


# The flow and the denoiser


@pytest.mark.parametrize(("m", "c"), [(0.0, 1.0), (0.4, 0.3)])
@pytest.mark.parametrize("t", [0.0, 0.2, 0.9])
def test_the_flows_estimate_is_the_conditional_mean(m, c, t):
    """E[x_1 | x_t] = m + c t / (c t^2 + (1 - t)^2) (x_t - t m), by the covariance of x_1 and x_t."""
    x = images(2)
    expected = m + c * t / (c * t**2 + (1 - t) ** 2) * (x - t * m)
    torch.testing.assert_close(clean(Gaussian(m, c), x, t), expected, rtol=1e-13, atol=1e-13)


def test_as_denoiser_is_the_posterior_mean():
    m, c, x, sigma = 0.4, 0.3, images(3), torch.tensor([0.05, 0.4, 3.0], dtype=torch.float64)
    s2 = sigma.reshape(-1, 1, 1, 1) ** 2
    torch.testing.assert_close(as_denoiser(Gaussian(m, c))(x, sigma), (c * x + s2 * m) / (c + s2), rtol=1e-12, atol=0)


# Flower


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("name", NAMES)
def test_flowers_mean_is_the_posterior_mean(name, steps, no_noise):
    """For N(0, I) its nu^2 is the variance of x_1 given x, so every refinement has the posterior mean for its mean."""
    op, sigma = operator_on(name, SIDE), 0.3
    y = op.A(images(1)) + 0.1
    mean, _ = minimum(op, y, sigma**2)
    for gamma in (0, 1):
        got = flower(Gaussian(0.0, 1.0), op, y, sigma, steps=steps, gamma=gamma)
        torch.testing.assert_close(got, mean, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", ["mask", "blur", "subsample"])
def test_flower_with_gamma_1_samples_the_posterior(name, steps):
    """Mean and covariance of 20,000 results, each entry within 5 standard errors."""
    op, sigma, count = operator_on(name, SIDE), 0.5, 20_000
    y = op.A(images(1)) + 0.1
    mean, inverse = minimum(op, y, sigma**2)
    covariance = sigma**2 * inverse
    many = y.expand(count, -1, -1, -1).contiguous()
    got = flower(Gaussian(0.0, 1.0), op, many, sigma, steps=steps, gamma=1, generator=torch.Generator().manual_seed(1))
    got = got.flatten(1)
    variances = covariance.diagonal()
    assert ((got.mean(0) - mean.flatten()) / (variances / count).sqrt()).abs().max() < 5
    error = (variances[:, None] * variances + covariance**2) / count  # of the entries of a sample covariance
    assert ((torch.cov(got.T) - covariance) / error.sqrt()).abs().max() < 5
    still = flower(Gaussian(0.0, 1.0), op, many[:2000], sigma, steps=steps, generator=torch.Generator().manual_seed(1))
    assert float(torch.cov(still.flatten(1).T).trace() / covariance.trace()) < 0.9  # gamma 0 has less spread


# OT-ODE


@pytest.mark.parametrize("name", NAMES)
def test_ot_odes_mean_converges_to_the_posterior_mean(name, no_noise):
    """Its guided flow ends in the posterior of N(0, I); starting at t_0 = 1 / N, the error falls like 1 / N."""
    op, sigma = operator_on(name, SIDE), 0.5
    y = op.A(images(1)) + 0.1
    mean, _ = minimum(op, y, sigma**2)
    coarse, fine = (
        relative_error(ot_ode(Gaussian(0.0, 1.0), op, y, sigma, steps=N, start=1 / N), mean) for N in (50, 200)
    )
    assert fine < 0.02
    assert 3 < coarse / fine < 5


# PnP-Flow


def test_pnp_flow_ends_at_the_least_squares_solution():
    """alpha small, A invertible: the prior's pull, (1 - t)^2 / c, and the noise of a step, 1 - t, fade with N."""
    kernel = torch.tensor([[0.0, 0.05, 0.0], [0.05, 0.8, 0.05], [0.0, 0.05, 0.0]], dtype=torch.float64)
    op, x_1, errors = Blur(kernel), images(1), []
    assert torch.linalg.cond(matrix(op)) < 2
    for N in (100, 1000):
        g = torch.Generator().manual_seed(3)
        x = pnp_flow(Gaussian(0.4, 0.3), op, op.A(x_1), 0.1, steps=N, alpha=0.01, generator=g)
        errors.append(float((x - x_1).abs().max()))
    assert errors[1] < 5 / 1000
    assert errors[1] < 0.2 * errors[0]


# PnP-HQS and DiffPIR


@pytest.mark.parametrize("weight", [0.23, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_pnp_hqs_at_a_constant_level_ends_at_its_fixed_point(name, weight):
    op, m, c, s = operator_on(name, SIDE), 0.4, 0.3, 0.3
    y = op.A(images(2, 3))
    x, _ = minimum(op, y, weight * s**2 / (c + s**2), m)
    got = pnp_hqs(as_denoiser(Gaussian(m, c)), op, y, s, steps=200, weight=weight, first=s)
    torch.testing.assert_close(got, (c * x + s**2 * m) / (c + s**2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_diffpirs_mean_follows_the_minimum(name, no_noise):
    """With fresh noise: the lag behind the minimum for the current s falls with the number of steps at each level.

    A step closes a share of about s^2 / c + s^2 / (weight sigma^2), 1.5 % at the last level, of the distance; the
    minimum moves there by about 0.5 % a level, and 2000 steps make 4 at a level: a lag of some percent.
    """
    op, m, c, sigma, weight = operator_on(name, SIDE), 0.2, 0.01, 0.1, 2.0
    y = op.A(m + c**0.5 * images(1, 3))
    a = float(_noise_levels(2)[-1])
    expected, _ = minimum(op, y, weight * sigma**2 / (c + (1 - a) / a), m)
    errors = {}
    for steps, zeta in ((300, 1.0), (2000, 1.0), (300, 0.4)):
        got = diffpir(as_denoiser(Gaussian(m, c)), op, y, sigma, steps=steps, weight=weight, zeta=zeta)
        assert got.abs().max() < 0.9  # nothing was clamped
        errors[steps, zeta] = relative_error(got - m, expected - m)
    assert errors[2000, 1.0] < 0.06
    assert errors[2000, 1.0] < 0.35 * errors[300, 1.0]
    assert errors[300, 0.4] > 1.5 * errors[300, 1.0]  # less fresh noise forgets more slowly
