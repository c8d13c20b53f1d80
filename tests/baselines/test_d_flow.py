"""D-Flow: its objective, its start, and what it converges to where the flow is known in closed form."""

import math

import pytest
import torch
from torch import nn

from firm.baselines import d_flow
from firm.baselines._d_flow import integrate, norm_penalty, objective, to_images
from firm.networks import PriorUNet
from firm.operators import Blur, Fourier, Mask, Subsample, gaussian_kernel

SIGNS = {"published": -1, "corrected": 1}


class Gaussian(nn.Module):
    """The velocity of the flow from N(0, I) to N(m, c I): E[x_1 - x_0 | x_t], with x_t of mean t m."""

    def __init__(self, m=0.3, c=0.2):
        super().__init__()
        self.m, self.c = m, c

    def forward(self, x, t):
        t = t.reshape(-1, 1, 1, 1)
        covariance, variance = self.c * t - (1 - t), self.c * t**2 + (1 - t) ** 2
        return self.m + covariance / variance * (x - t * self.m)

    def midpoint(self):
        """T(z) = a z + b of five midpoint steps, by recursion."""

        def slope_and_offset(t):
            k = (self.c * t - (1 - t)) / (self.c * t**2 + (1 - t) ** 2)
            return k, self.m - k * t * self.m

        a, b, h = 1.0, 0.0, 0.2
        for i in range(5):
            k, r = slope_and_offset(i * h)
            k_mid, r_mid = slope_and_offset(i * h + h / 2)
            step = 1 + h * k_mid * (1 + h / 2 * k)
            a, b = step * a, step * b + h * (k_mid * h / 2 * r + r_mid)
        return a, b


class Tiny(nn.Module):
    """A small velocity that is not linear, and quick."""

    def __init__(self, channels=1):
        super().__init__()
        self.first, self.last = nn.Conv2d(channels, 4, 3, padding=1), nn.Conv2d(4, channels, 3, padding=1)
        self.double().requires_grad_(False)

    def forward(self, x, t):
        return 2 * self.last(torch.tanh(2 * self.first(x) + t.reshape(-1, 1, 1, 1)))


def small_prior(channels=1):
    net = PriorUNet(channels, side=8, ch=8, mult=(1,), blocks=1, groups=4, attention=()).double()
    g = torch.Generator().manual_seed(1)
    for p in net.parameters():
        p.requires_grad_(False).copy_(0.25 * torch.randn(p.shape, generator=g))
    return net


def images(batch=1, seed=0, channels=1):
    return torch.randn(batch, channels, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def operators():
    mask = (torch.rand(8, 8, generator=torch.Generator().manual_seed(2)) < 0.6).double()
    return {
        "mask": Mask(mask),
        "blur": Blur(gaussian_kernel(5, 0.6).double()),
        "subsample": Subsample(2),
        "fourier": Fourier(mask),
    }


def seeds(*numbers):
    return [torch.Generator().manual_seed(n) for n in numbers]


def transcribed(net, op, y, z, weight, sign):
    """The objective of one image, from the formula."""
    x, h = z, 1 / 5
    for i in range(5):
        now, half = (torch.full((1,), s, dtype=z.dtype) for s in (i * h, i * h + h / 2))
        x = x + h * net(x + h / 2 * net(x, now), half)
    norm = z.square().sum().sqrt()
    chi = norm**2 / 2 - (z.numel() - 1) * norm.add(1e-5).log()
    return (op.A(x) - y).abs().square().sum() + SIGNS[sign] * weight * chi


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("name", operators())
def test_the_objective_is_the_formula(name, sign):
    net, op = small_prior(), operators()[name]
    z, y = images(3), op.A(images(3, 5))
    y = y + 0.1 * torch.randn_like(y)
    z.requires_grad_()
    values = objective(net, op, y, z, 0.7, sign, torch.arange(3))
    (gradient,) = torch.autograd.grad(values.sum(), z)
    for b in range(3):
        alone = z[b : b + 1].detach().requires_grad_()
        expected = transcribed(net, op, y[b : b + 1], alone, 0.7, sign)
        torch.testing.assert_close(values[b], expected)
        torch.testing.assert_close(gradient[b : b + 1], torch.autograd.grad(expected, alone)[0])


def test_the_penalty_is_bounded_as_in_the_published_code():
    z = torch.full((1, 1, 8, 8), 1e3, dtype=torch.float64, requires_grad=True)
    value, norm = norm_penalty(z, "published"), 8e3
    assert value.item() == pytest.approx(-1e6 + 63 * math.log(norm))
    (gradient,) = torch.autograd.grad(value.sum(), z)
    torch.testing.assert_close(gradient, 63 * z.detach() / norm**2)  # the bounded term has none


@pytest.mark.parametrize("sign", SIGNS)
def test_a_run_is_that_of_torchs_optimizer(sign):
    net, op = Tiny(), operators()["blur"]
    y = op.A(images(1, 5)) + 0.1 * images(1, 6)
    x = d_flow(net, op, y, 0.1, regularization=0.05, blend=0.4, outer=2, inner=4, sign=sign, generator=seeds(3))

    z = integrate(net, op.A_adjoint(y), 1.0, 0.0)
    eps = torch.randn(1, 1, 8, 8, dtype=torch.float64, generator=seeds(3)[0])
    z = (math.sqrt(0.4) * z + math.sqrt(0.6) * eps).requires_grad_()
    optimizer = torch.optim.LBFGS([z], max_iter=4, history_size=100, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = transcribed(net, op, y, z, 0.05, sign)
        value.backward()
        return value

    for _ in range(2):
        optimizer.step(closure)
    torch.testing.assert_close(x, to_images(net, z.detach()), rtol=1e-7, atol=1e-8)


def test_the_way_back_is_the_flow_backwards():
    """For the Gaussian it is known, z = (x - m) / sqrt(c); for a network it is compared with 400 midpoint steps."""
    x, exact = images(2), Gaussian(0.3, 0.2)
    torch.testing.assert_close(integrate(exact, x, 1.0, 0.0), (x - 0.3) / 0.2**0.5, rtol=1e-5, atol=3e-5)
    torch.testing.assert_close(integrate(exact, x, 0.0, 1.0, 1e-8), 0.3 + 0.2**0.5 * x, rtol=1e-7, atol=1e-7)
    net, fine, h = Tiny(), x, 1 / 400
    for i in range(400):
        t = torch.full((2,), 1 - i * h, dtype=x.dtype)
        fine = fine - h * net(fine - h / 2 * net(fine, t), t - h / 2)
    assert (fine - x).abs().max() > 0.1
    torch.testing.assert_close(integrate(net, x, 1.0, 0.0, 1e-7), fine, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(integrate(net, x, 1.0, 0.0), fine, rtol=3e-4, atol=3e-4)  # the steps' errors add up


def test_every_image_is_integrated_in_its_own_steps():
    """Images of very different steepness: alone they take different numbers of steps, to the same result."""
    calls = []

    def steep(x, t):
        calls.append(len(x))
        return torch.cos(x * x.detach().abs().amax((1, 2, 3), keepdim=True))

    x = images(3) * torch.tensor([0.1, 1.0, 4.0], dtype=torch.float64).reshape(3, 1, 1, 1)
    together, counts = integrate(steep, x, 1.0, 0.0), []
    for b in range(3):
        calls.clear()
        alone = integrate(steep, x[b : b + 1], 1.0, 0.0)
        torch.testing.assert_close(together[b : b + 1], alone, rtol=1e-10, atol=1e-10)
        counts.append(len(calls))
    assert counts[0] < counts[1] < counts[2]


def test_a_flow_that_is_not_finite_is_reported():
    with pytest.raises(RuntimeError, match="are the network's values finite"):
        integrate(lambda x, t: x * float("nan"), images(1), 1.0, 0.0)


def test_midpoint_steps_of_a_gaussian_flow():
    a, b = Gaussian().midpoint()
    z = images(2)
    torch.testing.assert_close(to_images(Gaussian(), z), a * z + b)
    assert a == pytest.approx(0.2**0.5, rel=0.1)  # which the flow itself has
    assert b == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize("name", ["blur", "subsample"])
def test_without_a_penalty_it_fits_the_measurements(name):
    op = operators()[name]
    y = op.A(images(2, 5))
    x = d_flow(Gaussian(), op, y, 0.0, regularization=0.0, outer=3, generator=seeds(0, 1))
    assert (op.A(x) - y).abs().max() < 1e-4


def test_with_the_corrected_penalty_it_stops_where_the_gradient_is_zero():
    op, prior, weight = operators()["subsample"], Gaussian(), 0.2
    y = op.A(images(2, 5))
    x = d_flow(prior, op, y, 0.1, regularization=weight, outer=8, sign="corrected", generator=seeds(0, 1))
    a, b = prior.midpoint()
    z = (x - b) / a
    norm = z.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
    fit, penalty = 2 * a * op.A_adjoint(op.A(x) - y), weight * (1 - 63 / (norm * (norm + 1e-5))) * z
    assert (fit + penalty).abs().max() < 1e-4
    assert penalty.abs().max() > 1e-2


def test_an_images_result_does_not_depend_on_its_batch():
    net, op = Tiny(), operators()["subsample"]
    y = op.A(images(3, 5))
    together = d_flow(net, op, y, 0.1, outer=2, inner=4, generator=seeds(3, 4, 5))
    alone = d_flow(net, op, y[1:2], 0.1, outer=2, inner=4, generator=seeds(4))
    torch.testing.assert_close(together[1:2], alone, rtol=1e-8, atol=1e-8)
    assert (together[0] - together[1]).abs().max() > 0.1


def test_single_precision_complex_measurements_progress_and_no_grad():
    net, op = Tiny(3).float(), Fourier(operators()["mask"].mask.float())
    y, seen = op.A(images(2, 5, 3).float()), []
    assert y.is_complex()

    def callback(done, total, x):
        seen.append((done, total, x))

    with torch.no_grad():
        x = d_flow(net, op, y, 0.1, outer=3, inner=3, generator=seeds(1, 2), callback=callback)
    assert (x.dtype, x.shape, x.requires_grad) == (torch.float32, (2, 3, 8, 8), False)
    assert [row[:2] for row in seen] == [(1, 3), (2, 3), (3, 3)]
    assert torch.equal(seen[-1][2], x)
    errors = [float((op.A(x) - y).abs().square().sum()) for *_, x in seen]
    assert errors[2] < errors[1] < errors[0]


def test_what_cannot_be_run_is_refused():
    net, op, y = small_prior(), operators()["mask"], images(1)
    with pytest.raises(ValueError, match='sign must be "published" or "corrected", got \'wrong\''):
        d_flow(net, op, y, 0.1, sign="wrong")
    with pytest.raises(ValueError, match="outer and inner must be at least 1, got 0 and 20"):
        d_flow(net, op, y, 0.1, outer=0)
    with pytest.raises(ValueError, match=r"blend must be between 0 and 1, got 1\.5"):
        d_flow(net, op, y, 0.1, blend=1.5)
    with pytest.raises(ValueError, match="regularization must be a number of at least 0, got -1"):
        d_flow(net, op, y, 0.1, regularization=-1)
    with pytest.raises(ValueError, match="NaN"):
        d_flow(net, op, y * float("nan"), 0.1)
    with pytest.raises(ValueError, match=r"the network is for images \(B, 1, H, W\)"):
        d_flow(net, op, images(1, channels=3), 0.1)
