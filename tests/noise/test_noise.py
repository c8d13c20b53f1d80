"""The noise models: draws against exact probabilities, likelihoods against densities, proximal steps against grids."""

import math

import pytest
import torch
from helpers import rand, randn
from torch.autograd import gradcheck, gradgradcheck

import firm
from firm.noise import Gaussian, Poisson, PoissonGaussian
from firm.noise.base import Rows
from firm.noise.poisson import poisson_quantile

MODELS = {
    "gaussian": Gaussian(0.3),
    "map": Gaussian(0.05 + 0.4 * rand(1, 1, 6, 6)),
    "poisson": Poisson(2 / 30),
    "dim": Poisson(0.5),
    "camera": PoissonGaussian(0.05, 0.03),
    "coarse camera": PoissonGaussian(0.3, 0.01),
}


def measured(noise, side=6, batch=40, dtype=torch.float64):
    """Noiseless measurements and noisy ones, some of them black."""
    u = rand(batch, 1, side, side).to(dtype) * 2 - 1
    u[:4] = -1
    noise = noise.on(firm.operators.Identity(), u, u)
    return noise, u, noise.draw(u, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("mean", [1e-3, 0.3, 1.0, 4.5, 30.0, 150.0])
def test_quantiles_are_those_of_the_poisson_distribution(mean):
    """Of 100,000 numbers all round to the k with P(X < k) <= u < P(X <= k), up to the rounding of float32."""
    u = (torch.arange(100_000) + 0.5) / 100_000
    k = poisson_quantile(u, torch.full_like(u, mean)).double()
    m = torch.tensor(mean, dtype=torch.float64)
    upper = torch.special.gammaincc(k + 1, m)
    lower = torch.where(k > 0, torch.special.gammaincc(k.clamp(min=1), m), 0)
    wrong = (u.double() < lower - 1e-5) | (u.double() > upper + 1e-5)
    assert float(wrong.double().mean()) < 1e-4


def test_many_photons_have_the_right_moments():
    k = poisson_quantile((torch.arange(100_000) + 0.5) / 100_000, torch.full((100_000,), 5000.0)).double()
    assert abs(k.mean() - 5000) < 0.5
    assert abs(k.var() / 5000 - 1) < 0.01


@pytest.mark.parametrize("name", MODELS)
def test_draws_have_the_mean_and_deviation_that_are_stated(name):
    u = torch.linspace(-0.9, 0.9, 36, dtype=torch.float64).reshape(1, 1, 6, 6)
    noise = MODELS[name].on(firm.operators.Identity(), u, u)
    many = u.expand(20_000, -1, -1, -1)
    y = noise.draw(many, torch.Generator().manual_seed(0))
    std = (MODELS[name].gain * (u + 1)).sqrt() if name == "dim" else noise.std(u)  # which is not below one photon's
    assert ((y.mean(0) - u[0]).abs() < 4.5 * std[0] / math.sqrt(20_000)).all()
    assert ((y.std(0) / std[0] - 1).abs() < 0.05).all()


def test_the_draws_of_a_batch_do_not_depend_on_how_it_is_split():
    u = rand(6, 1, 5, 5) * 2 - 1
    for noise in (Poisson(0.1), PoissonGaussian(0.1, 0.1), Gaussian(0.2)):
        torch.manual_seed(3)
        whole = noise.draw(u, Rows(6, 0, 6))
        parts = []
        for start in (0, 2, 4):
            torch.manual_seed(3)
            parts.append(noise.draw(u[start : start + 2], Rows(6, start, start + 2)))
        assert torch.equal(whole, torch.cat(parts))


def test_likelihoods_are_the_densities():
    u, k = torch.tensor([[0.3, -0.5]], dtype=torch.float64), torch.tensor([[5.0, 2.0]], dtype=torch.float64)
    gain, sigma = 0.2, 0.1
    y = gain * k - 1

    def change(noise, v):  # constants cancel
        return float(noise.neg_log_likelihood(v, y) - noise.neg_log_likelihood(u, y))

    v = torch.tensor([[0.1, 0.2]], dtype=torch.float64)
    counts = [torch.distributions.Poisson((w + 1) / gain).log_prob(k).sum() for w in (u, v)]
    assert change(Poisson(gain), v) == pytest.approx(float(counts[0] - counts[1]))
    normal = [torch.distributions.Normal(w, (gain * (w + 1) + sigma**2).sqrt()).log_prob(y).sum() for w in (u, v)]
    assert change(PoissonGaussian(gain, sigma), v) == pytest.approx(float(normal[0] - normal[1]))
    levels = torch.tensor([[0.1, 0.7]], dtype=torch.float64)
    normal = [torch.distributions.Normal(w, levels).log_prob(y).sum() for w in (u, v)]
    assert change(Gaussian(levels), v) == pytest.approx(float(normal[0] - normal[1]))
    assert float(Poisson(gain).neg_log_likelihood(u - 2, y)) == math.inf


@pytest.mark.parametrize("weight", [0.01, 1.0, 50.0, 2000.0])
@pytest.mark.parametrize("name", MODELS)
def test_proximal_steps_are_the_best_of_a_grid(name, weight):
    noise, _, y = measured(MODELS[name])
    v = rand(*y.shape, seed=5).double() * 3.4 - 1.7
    u = noise.prox(v, y, weight)
    flat = [x.flatten()[:, None] for x in (v, y)]
    held = {key: p.expand_as(y).flatten()[:, None] for key, p in noise._buffers.items() if p is not None}
    single = type(noise)(**held)

    def objective(u):
        u = u.clamp(min=-1) if noise._buffers.get("offset") is not None else u  # it rounds
        return single.neg_log_likelihood(u, flat[1]) + weight / 2 * (u - flat[0]).square()[:, 0]

    found = objective(u.flatten()[:, None])
    for value in torch.linspace(-1 if "offset" in noise._buffers else -4, 4, 1001, dtype=torch.float64):
        assert (found <= objective(value.expand_as(flat[0])) + 1e-9).all(), value
    single_precision = noise.float().prox(v.float(), y.float(), weight)
    noise.double()
    torch.testing.assert_close(single_precision.double(), u, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_proximal_steps_have_the_right_gradients(name):
    noise, _, y = measured(MODELS[name], side=6, batch=2)
    v = (rand(*y.shape, seed=5).double() * 2 - 1).requires_grad_()
    y = (y + 0.2).requires_grad_()
    weight = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    assert gradcheck(noise.prox, (v, y, weight))
    assert gradgradcheck(noise.prox, (v, y, weight))


def test_the_level_is_the_root_mean_square_where_light_is_seen():
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    op, x = firm.operators.Mask(mask), torch.tensor([[[[0.0, 0.5, 0.2, 0.9]]]])
    noise = Poisson(0.1).on(op, op.A(x), x)
    assert float(noise.level(op.A(x))) == pytest.approx(math.sqrt((0.1 * 1.0 + 0.1 * 1.5) / 2))
    constant = Gaussian(torch.full((1, 1, 1, 4), 0.3)).on(op, x, x)
    assert constant.level(x).tolist() == torch.tensor([0.3]).tolist()  # to the bit
    assert (constant.relative(firm.operators.Identity(), x, x) == 0).all()
    assert (Gaussian(0.3).on(op, x, x).relative(op, x, x) == 0).all()


def test_what_the_network_is_told_is_where_there_is_more_noise():
    op = firm.operators.Mask(torch.tensor([[1.0, 1.0, 0.0]]))
    x = torch.tensor([[[[-0.5, 0.8, 0.3]]]])
    noise = Poisson(0.05).on(op, op.A(x), x)
    std = (0.05 * torch.tensor([0.5, 1.8])).sqrt()
    expected = (std / std.square().mean().sqrt()).log()
    torch.testing.assert_close(noise.relative(op, op.A(x), x).flatten(), torch.cat([expected, torch.zeros(1)]))


def test_noise_with_a_spectrum():
    """Its draws have the covariance F' diag(s^2) F, and its likelihood is that of the multivariate normal."""
    spectrum = (1 + 2 * rand(4, 4)).double()
    spectrum = (spectrum + spectrum.flip(-2, -1).roll((1, 1), (-2, -1))) / 2
    noise, u = Gaussian(0.5, spectrum), torch.zeros(60_000, 1, 4, 4, dtype=torch.float64)
    unit = torch.eye(16, dtype=torch.float64).reshape(16, 4, 4)
    covariance = 0.25 * torch.fft.ifft2(spectrum.square() * torch.fft.fft2(unit)).real.reshape(16, 16)
    y = noise.draw(u, torch.Generator().manual_seed(0)).flatten(1)
    torch.testing.assert_close(y.T @ y / len(y), covariance, rtol=0, atol=0.05)
    two = randn(2, 1, 4, 4)
    normal = torch.distributions.MultivariateNormal(torch.zeros(16, dtype=torch.float64), covariance)
    found = noise.neg_log_likelihood(torch.zeros_like(two), two)
    expected = -normal.log_prob(two.flatten(1))
    assert float(found[0] - found[1]) == pytest.approx(float(expected[0] - expected[1]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Poisson(0), "gain must be finite and above 0"),
        (lambda: Poisson(-0.1), "gain must be finite and above 0"),
        (lambda: PoissonGaussian(torch.tensor([0.1, math.nan]), 0.1), "gain must be finite"),
        (lambda: PoissonGaussian(0.1, 0), "sigma must be finite and above 0"),
        (lambda: Gaussian(-1), "sigma must be finite and at least 0"),
        (lambda: Gaussian(torch.zeros(1, 3, 3)), "sigma must be finite and above 0"),
        (lambda: Gaussian(1, torch.tensor([[1.0, 2.0, 3.0]])), "the same at k and -k"),
    ],
)
def test_parameters_that_make_no_noise_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
