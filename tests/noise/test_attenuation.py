"""The noise of computed tomography, against counts that are drawn and summed here."""

import pytest
import torch
from helpers import randn, relative_error

import firm
from firm.noise import Attenuation, Gaussian, line_integrals
from firm.noise.base import Rows
from firm.operators import Identity, Radon, data_consistency
from firm.operators.scale import Scaled


def test_the_logarithm_of_counts_has_hardly_any_bias_and_the_deviation_that_is_stated():
    for mean, most in ((10.0, 0.01), (200.0, 0.001)):
        counts = torch.poisson(torch.full((200_000,), mean), generator=torch.Generator().manual_seed(0))
        p, sigma = line_integrals(counts.double(), 1000.0)
        expected = torch.tensor(1000 / mean).log()
        assert abs(float(p.mean() - expected)) < most
        assert float(p.std()) == pytest.approx(float(sigma.mean()), rel=0.06)
    p, sigma = line_integrals(torch.zeros(1), 1000.0)
    assert p.isfinite().all()
    assert float(sigma) == pytest.approx(2**0.5)


def test_draws_are_those_of_counted_photons():
    u = torch.tensor([-0.6, 0.0, 0.9], dtype=torch.float64).reshape(1, 1, 1, 3).expand(30_000, -1, -1, -1)
    noise = Attenuation(500.0, unit=0.4, offset=0.7).on(Identity(), u, u)
    y = noise.draw(u, torch.Generator().manual_seed(0))
    k = 500 * torch.exp(-(y + 0.7) / 0.4) - 0.5
    torch.testing.assert_close(k, k.round(), rtol=0, atol=1e-6)
    mean = 500 * torch.exp(-(u[0] + 0.7) / 0.4)
    torch.testing.assert_close(k.mean(0), mean, rtol=0.02, atol=0)
    torch.testing.assert_close(k.var(0), mean, rtol=0.05, atol=0)
    torch.testing.assert_close(noise.std(y), 0.4 / (k + 0.5).sqrt())
    torch.manual_seed(1)
    whole = noise.draw(u[:4], Rows(4, 0, 4))
    torch.manual_seed(1)
    assert torch.equal(noise.draw(u[2:4], Rows(4, 2, 4)), whole[2:])


def test_likelihood_and_proximal_step():
    noise = Attenuation(50.0, 0.5, 1.0)
    u, y = randn(1, 6) / 5, randn(1, 6, seed=1) / 5
    k = 50 * torch.exp(-(y + 1) / 0.5) - 0.5
    other = torch.distributions.Poisson(50 * torch.exp(-(u + 1) / 0.5), validate_args=False)
    mine = noise.neg_log_likelihood(u, y) - noise.neg_log_likelihood(y, y)
    its = torch.distributions.Poisson(k + 0.5, validate_args=False).log_prob(k) - other.log_prob(k)
    torch.testing.assert_close(mine, its.sum(1))
    x = noise.prox(u, y, 3.0)
    torch.testing.assert_close((x - y) / noise.std(y).square() + 3 * (x - u), torch.zeros_like(x), rtol=0, atol=1e-9)


def test_solves_as_weighted_least_squares_and_scales_with_the_measurements():
    op = Radon([0.1, 0.9, 2.0], 6).double()
    x = randn(2, 1, 6, 6).clamp(-1, 1) / 2
    noise = Attenuation(torch.tensor([1e3, 1e4]), 4.0).on(op, op.A(x), x)
    y = noise.draw(op.A(x), torch.Generator().manual_seed(0))
    z = torch.zeros_like(x)
    seen = noise._seen(y)
    assert ((seen > 0) == (op.A(torch.ones_like(x)) > 0)).all()
    assert torch.equal(y[seen == 0], torch.zeros_like(y[seen == 0]))
    got = data_consistency(op, z, y, 0.5, noise)
    assert relative_error(got, data_consistency(op, z, y, 0.5, Gaussian(noise.std(y)))) < 1e-12
    c = torch.tensor([0.1, 0.1], dtype=torch.float64)
    small = noise.scaled(c)
    torch.testing.assert_close(small.std(0.1 * y), 0.1 * noise.std(y))
    torch.testing.assert_close(small.on(Scaled(op, c), 0.1 * y, x).level(0.1 * y), 0.1 * noise.level(y))


def test_more_photons_restore_better_and_heavy_rays_count_less():
    """Of two rays with the same misfit, the one that counted more photons is followed."""
    y = torch.tensor([[[[0.2, 2.0]]]])
    noise = Attenuation(100.0, 1.0, 0.0)
    x = data_consistency(firm.operators.Identity(), torch.zeros(1, 1, 1, 2), y, 1.0, noise)
    share = x / y
    assert float(share[..., 0]) > 2 * float(share[..., 1])
