"""Proposition 1 and its lemmas on the mixture, where everything is known; scipy and brute force are the oracles."""

import pytest
import torch
from scipy.stats import wasserstein_distance

import firm
from experiments.toy import problem as toy

FIELD, OP = toy.ExactField(), toy.operator().double()
Y = torch.tensor([1.3, 0.4], dtype=torch.float64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def brute_force(x_t, t, y):
    """Mean and covariance of p(x_1 | x_t, y) by summing prior times likelihoods over a fine grid."""
    axis = torch.linspace(-4, 4, 401, dtype=torch.float64)
    x = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    prior = torch.logsumexp(-((x[:, None] - toy.MEANS.double()) ** 2).sum(-1) / (2 * toy.STD**2), dim=1)
    log_p = prior - ((x_t - t * x) ** 2).sum(-1) / (2 * (1 - t) ** 2) - (y[0] - x[:, 0]) ** 2 / (2 * toy.SIGMA**2)
    p = log_p.softmax(0)
    mean = p @ x
    return mean, (p[:, None] * (x - mean)).T @ (x - mean)


def states(n=5):
    return torch.randn(n, 2, dtype=torch.float64, generator=generator()) * 1.5


@pytest.mark.parametrize("t", [0.0, 0.3, 0.8, 0.95])
def test_posterior_mean_and_covariance_equal_brute_force(t):
    x_t = states()
    means = FIELD.posterior_mean(OP, x_t, t, Y.expand(5, 2))
    covariances = FIELD.covariance(OP, x_t, t, Y.expand(5, 2))
    for i in range(5):
        mean, covariance = brute_force(x_t[i], t, Y)
        torch.testing.assert_close(means[i], mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(covariances[i], covariance, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("t", [0.2, 0.5, 0.8])
def test_the_posterior_mean_is_the_stationary_point_of_the_variational_objective(t):
    """Proposition 1 (a). In terms of u_t (equation (34)) the implicit regularizer at m(u) is, after
    Gribonval and Machart, phi(m(u)) = -|u - m(u)|^2_M / 2 - log p(u); its gradient must be M (u - m(u))."""
    AtA = torch.tensor([1.0, 0.0], dtype=torch.float64)
    M = t**2 / (1 - t) ** 2 + AtA / toy.SIGMA**2  # equation (33), diagonal

    def m(u):
        """E[x_1 | u_t = u]: the exact mean for any x_t and y with this sufficient statistic."""
        x_t = u * M * (1 - t) ** 2 / t
        return FIELD.posterior_mean(OP, x_t, t, torch.zeros_like(u))  # y = 0: all of u M comes from x_t

    def phi(u):
        spread = toy.STD**2 + 1 / M
        log_p = torch.logsumexp(-((u[:, None] - toy.MEANS.double()) ** 2 / (2 * spread)).sum(-1), dim=1)
        return -(M * (u - m(u)) ** 2).sum(-1) / 2 - log_p

    u = states().requires_grad_()
    jacobian = torch.autograd.functional.jacobian(lambda v: m(v).sum(0), u).transpose(0, 1)  # dm/du, (5, 2, 2)
    grad_u = torch.autograd.grad(phi(u).sum(), u)[0]
    grad_m = torch.linalg.solve(jacobian.transpose(1, 2), grad_u)  # chain rule: dphi/du = (dm/du)' dphi/dm
    u = u.detach()
    torch.testing.assert_close(M * (m(u) - u) + grad_m, torch.zeros_like(u), rtol=0, atol=1e-8)

    # The same with x_t and y apart: the gradient of both data terms of equation (13) equals M (x - u).
    y, x_t, x = Y.expand(5, 2), states(), states().flip(0)
    u_t = (t / (1 - t) ** 2 * x_t + AtA * y / toy.SIGMA**2) / M
    data = t * (t * x - x_t) / (1 - t) ** 2 + AtA * (x - y) / toy.SIGMA**2
    torch.testing.assert_close(data, M * (x - u_t))
    torch.testing.assert_close(m(u_t), FIELD.posterior_mean(OP, x_t, t, y))  # Lemma: u_t is sufficient

    # A minimizer, not only stationary: the objective is larger at other means.
    def objective(v):  # at x = m(v), for the data u
        return (M * (u - m(v)) ** 2).sum(-1) / 2 + phi(v)

    for _ in range(20):
        assert (objective(u + 0.3 * torch.randn(u.shape, dtype=u.dtype)) > objective(u)).all()


@pytest.mark.parametrize("t", [0.1, 0.5, 0.9])
def test_the_jacobian_of_the_mean_is_the_scaled_covariance(t):
    """Lemma "Regularity of the conditional mean", equation (50)."""
    x_t, y = states(), Y.expand(5, 2)
    jacobian = torch.autograd.functional.jacobian(lambda x: FIELD.posterior_mean(OP, x, t, y).sum(0), x_t)
    expected = t / (1 - t) ** 2 * FIELD.covariance(OP, x_t, t, y)
    torch.testing.assert_close(jacobian.transpose(0, 1), expected)


def test_the_velocity_is_the_mean_of_the_path_velocity():
    """Lemma "velocity identity" by Monte Carlo: E[x_1 - x_0 | x_t near x, y near Y]."""
    n, t = 4_000_000, 0.4
    x_1 = toy.sample_prior(n, generator())
    x_0 = torch.randn(n, 2, generator=generator(1))
    y = toy.measure(x_1, generator(2))
    x_t = (1 - t) * x_0 + t * x_1
    here = torch.tensor([0.7, 0.3])
    near = ((x_t - here).abs() < 0.1).all(1) & ((y[:, 0] - 1.5).abs() < 0.1)
    assert int(near.sum()) > 2000
    expected = FIELD.velocity(toy.operator(), here[None], t, torch.tensor([[1.5, 0.0]]))[0]
    torch.testing.assert_close((x_1 - x_0)[near].mean(0), expected, atol=0.12, rtol=0)


def test_the_exact_flow_transports_noise_to_the_posterior():
    """Proposition 1 (b): both coordinates, against exact samples (scipy) and the exact marginals."""
    y, n = torch.tensor([1.5, 0.0]), 20_000
    flow = firm.sample(
        toy.ExactField(), toy.operator(), y.expand(n, 2), 200, generator=generator(), integrator="midpoint"
    )
    exact = toy.sample_posterior(y, n, generator(1))
    for coordinate, limit in ((0, 0.005), (1, 0.03)):
        assert wasserstein_distance(flow[:, coordinate], exact[:, coordinate]) < limit
        assert toy.wasserstein(flow[:, coordinate], y, coordinate) < limit
    x = torch.randn(500, generator=generator()) * 0.7  # and how far they are from something else
    assert toy.wasserstein(x, y, 1) == pytest.approx(wasserstein_distance(x, exact[:, 1]), abs=0.02)
    torch.testing.assert_close(flow.T.cov(), exact.T.cov(), atol=0.02, rtol=0)


def test_the_exact_column_of_the_table():
    """Independently computed reference: W1 1.50, 0.52, 0.12, 0.01 and valley mass 100, 31, 2, 0.1 %."""
    y = torch.tensor([1.5, 0.0])
    reference = {1: (1.50, 1.00), 2: (0.52, 0.31), 4: (0.12, 0.02), 50: (0.01, 0.001)}
    for N, (w1, valley) in reference.items():
        x = firm.sample(toy.ExactField(), toy.operator(), y.expand(100_000, 2), N, generator=generator(2))
        assert toy.wasserstein(x[:, 1], y, 1) == pytest.approx(w1, abs=0.01)
        assert float((x[:, 1].abs() < toy.VALLEY).float().mean()) == pytest.approx(valley, abs=0.01)


def test_density_and_marginals_belong_together_and_the_valley_is_empty():
    axis = torch.linspace(-4, 4, 801, dtype=torch.float64)
    points = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)
    p = toy.density(points, Y)
    assert float(p.sum() * 0.01**2) == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(p.sum(0).cumsum(0) * 0.01**2, toy.marginal_cdf(axis + 0.005, Y, 1), atol=1e-3, rtol=0)
    low, high = toy.marginal_cdf(torch.tensor([-toy.VALLEY, toy.VALLEY]).double(), torch.tensor([1.5, 0.0]).double(), 1)
    assert 0.499 < float(low) < float(high) < float(low) + 3e-4
