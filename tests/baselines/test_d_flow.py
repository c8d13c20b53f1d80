"""D-Flow: its objective, its start, and what it converges to where the flow is known in closed form."""

import math

import pytest
import torch

from firm.baselines import d_flow
from firm.baselines._d_flow import _integrate, _norm_penalty, _objective, _to_images
from flow_helpers import Gaussian, Tiny, operator_on, seeds, small_network

SIGNS = {"published": -1, "corrected": 1}


def midpoint(flow):
    """T(z) = a z + b of five midpoint steps of a `Gaussian` flow, by recursion."""

    def slope_and_offset(t):
        k = (flow.c * t - (1 - t)) / (flow.c * t**2 + (1 - t) ** 2)
        return k, flow.m - k * t * flow.m

    a, b, h = 1.0, 0.0, 0.2
    for i in range(5):
        k, r = slope_and_offset(i * h)
        k_mid, r_mid = slope_and_offset(i * h + h / 2)
        step = 1 + h * k_mid * (1 + h / 2 * k)
        a, b = step * a, step * b + h * (k_mid * h / 2 * r + r_mid)
    return a, b


def images(batch=1, seed=0):
    return torch.randn(batch, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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
@pytest.mark.parametrize("name", ["mask", "blur", "subsample", "fourier"])
def test_the_objective_is_the_formula(name, sign):
    net, op = small_network(), operator_on(name)
    z, y = images(3), op.A(images(3, 5))
    y = y + 0.1 * torch.randn_like(y)
    z.requires_grad_()
    values = _objective(net, op, y, z, 0.7, sign)
    (gradient,) = torch.autograd.grad(values.sum(), z)
    for b in range(3):
        alone = z[b : b + 1].detach().requires_grad_()
        expected = transcribed(net, op, y[b : b + 1], alone, 0.7, sign)
        torch.testing.assert_close(values[b], expected)
        torch.testing.assert_close(gradient[b : b + 1], torch.autograd.grad(expected, alone)[0])


def test_the_penalty_is_bounded_as_in_the_published_code():
    z = torch.full((1, 1, 8, 8), 1e3, dtype=torch.float64, requires_grad=True)
    value, norm = _norm_penalty(z, "published"), 8e3
    assert value.item() == pytest.approx(-1e6 + 63 * math.log(norm))
    (gradient,) = torch.autograd.grad(value.sum(), z)
    torch.testing.assert_close(gradient, 63 * z.detach() / norm**2)  # the bounded term has none


@pytest.mark.parametrize("sign", SIGNS)
def test_a_run_is_that_of_torchs_optimizer(sign):
    net, op = Tiny(), operator_on("blur")
    y = op.A(images(1, 5)) + 0.1 * images(1, 6)
    x = d_flow(net, op, y, 0.1, regularization=0.05, blend=0.4, outer=2, inner=4, sign=sign, generator=seeds(3))

    z = _integrate(net, op.A_adjoint(y), 1.0, 0.0)
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
    torch.testing.assert_close(x, _to_images(net, z.detach()), rtol=1e-7, atol=1e-8)


def test_the_way_back_is_the_flow_backwards():
    """For the Gaussian it is known, z = (x - m) / sqrt(c); for a network it is compared with 400 midpoint steps."""
    x, exact = images(2), Gaussian(0.3, 0.2)
    torch.testing.assert_close(_integrate(exact, x, 1.0, 0.0), (x - 0.3) / 0.2**0.5, rtol=1e-5, atol=3e-5)
    torch.testing.assert_close(_integrate(exact, x, 0.0, 1.0, 1e-8), 0.3 + 0.2**0.5 * x, rtol=1e-7, atol=1e-7)
    net, fine, h = Tiny(), x, 1 / 400
    for i in range(400):
        t = torch.full((2,), 1 - i * h, dtype=x.dtype)
        fine = fine - h * net(fine - h / 2 * net(fine, t), t - h / 2)
    assert (fine - x).abs().max() > 0.1
    torch.testing.assert_close(_integrate(net, x, 1.0, 0.0, 1e-7), fine, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(_integrate(net, x, 1.0, 0.0), fine, rtol=3e-4, atol=3e-4)  # the steps' errors add up


def test_every_image_is_integrated_in_its_own_steps():
    """Images of very different steepness: alone they take different numbers of steps, to the same result."""
    calls = []

    def steep(x, t):
        calls.append(len(x))
        return torch.cos(x * x.detach().abs().amax((1, 2, 3), keepdim=True))

    x = images(3) * torch.tensor([0.1, 1.0, 4.0], dtype=torch.float64).reshape(3, 1, 1, 1)
    together, counts = _integrate(steep, x, 1.0, 0.0), []
    for b in range(3):
        calls.clear()
        alone = _integrate(steep, x[b : b + 1], 1.0, 0.0)
        torch.testing.assert_close(together[b : b + 1], alone, rtol=1e-10, atol=1e-10)
        counts.append(len(calls))
    assert counts[0] < counts[1] < counts[2]


def test_a_flow_that_is_not_finite_is_reported():
    with pytest.raises(RuntimeError, match="are the network's values finite"):
        _integrate(lambda x, t: x * float("nan"), images(1), 1.0, 0.0)


@pytest.mark.parametrize("name", ["blur", "subsample"])
def test_without_a_penalty_it_fits_the_measurements(name):
    op = operator_on(name)
    y = op.A(images(2, 5))
    x = d_flow(Gaussian(), op, y, 0.0, regularization=0.0, outer=3, generator=seeds(0, 1))
    assert (op.A(x) - y).abs().max() < 1e-4


def test_with_the_corrected_penalty_it_stops_where_the_gradient_is_zero():
    op, prior, weight = operator_on("subsample"), Gaussian(), 0.2
    y = op.A(images(2, 5))
    x = d_flow(prior, op, y, 0.1, regularization=weight, outer=8, sign="corrected", generator=seeds(0, 1))
    a, b = midpoint(prior)
    z = (x - b) / a
    norm = z.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
    fit, penalty = 2 * a * op.A_adjoint(op.A(x) - y), weight * (1 - 63 / (norm * (norm + 1e-5))) * z
    assert (fit + penalty).abs().max() < 1e-4
    assert penalty.abs().max() > 1e-2
