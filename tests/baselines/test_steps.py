"""PnP-Flow, Flower, OT-ODE, PnP-HQS and DiffPIR with a network: single steps written down again."""

import math

import numpy as np
import pytest
import torch

from firm.baselines import as_denoiser, diffpir, flower, ot_ode, pnp_flow, pnp_hqs
from firm.operators import first_guess
from flow_helpers import operator_on, seeds, small_network

SIDE, CHANNELS = 8, 2
SHAPE, D = (CHANNELS, SIDE, SIDE), CHANNELS * SIDE * SIDE
SIGMA = 0.15


@pytest.fixture(scope="module")
def net():
    return small_network(channels=CHANNELS)


def images(batch=1, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(batch, *SHAPE, dtype=torch.float64, generator=g) * 2 - 1


def measured(op, batch=1):
    y = op.A(images(batch, 5))
    return y + SIGMA * torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(6))


def draws(seed, *shape):
    """The random numbers that a method draws, one after the other."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *other: torch.randn(*(other or shape or (1, *SHAPE)), dtype=torch.float64, generator=generator)


def matrix(op):
    """A as a matrix, (m, n)."""
    units = torch.eye(D, dtype=torch.float64).reshape(D, *SHAPE)
    return torch.cat([op.A(unit[None]).flatten(1) for unit in units]).T


def at(net, x, t):
    return net(x, torch.full((len(x),), t, dtype=torch.float64))


def solve(A, left, right):
    """(A'A + left I)^-1 right for an image `right`."""
    system = A.T @ A + left * torch.eye(D, dtype=torch.float64)
    return torch.linalg.solve(system, right.flatten()).reshape(1, *SHAPE)


def back(A, y):
    return (A.T @ y.flatten()).reshape(1, *SHAPE)


def same(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)


OPERATORS = ("matrix", "mask", "blur", "subsample")


@pytest.mark.parametrize("averages", [1, 3])
@pytest.mark.parametrize("name", OPERATORS)
def test_two_steps_of_pnp_flow(name, averages, net):
    op = operator_on(name, SIDE, CHANNELS)
    y, A, noise, alpha = measured(op), matrix(op), draws(7), 0.3
    got = pnp_flow(net, op, y, SIGMA, steps=2, averages=averages, alpha=alpha, generator=seeds(7))
    x = torch.zeros(1, *SHAPE, dtype=torch.float64)  # any start will do
    for t in (0.0, 0.5):
        z = x - (1 - t) ** alpha * back(A, A @ x.flatten() - y.flatten())
        noisy = [t * z + (1 - t) * noise() for _ in range(averages)]
        x = sum(w + (1 - t) * at(net, w, t) for w in noisy) / averages
    same(got, x)


@pytest.mark.parametrize(("averages", "gamma"), [(1, 0), (1, 1), (3, 0)])
@pytest.mark.parametrize("name", OPERATORS)
def test_two_steps_of_flower(name, averages, gamma, net):
    op = operator_on(name, SIDE, CHANNELS)
    y, A, noise = measured(op), matrix(op), draws(7)
    got = flower(net, op, y, SIGMA, steps=2, averages=averages, gamma=gamma, generator=seeds(7))
    total = torch.zeros(1, *SHAPE, dtype=torch.float64)
    for _ in range(averages):
        x = noise()
        for t, after in ((0.0, 0.5), (0.5, 1.0)):
            x_1 = x + (1 - t) * at(net, x, t)
            nu2 = (1 - t) ** 2 / (t**2 + (1 - t) ** 2)
            right = back(A, y) / SIGMA**2 + x_1 / nu2
            if gamma:  # with the sample of N(0, (A'A / sigma^2 + I / nu^2)^-1)
                right = right + noise() / nu2**0.5 + back(A, noise(*y.shape)) / SIGMA
            x = solve(A, SIGMA**2 / nu2, SIGMA**2 * right)
            x = after * x + (1 - after) * noise() if after < 1 else x
        total += x / averages
    same(got, total)


@pytest.mark.parametrize("schedule", ["constant", "sqrt"])
@pytest.mark.parametrize("spread", [1.0, 100.0])
@pytest.mark.parametrize("name", OPERATORS)
def test_two_steps_of_ot_ode(name, spread, schedule, net):
    """With the Jacobian as a matrix, and the inverse in the space of the measurements, as the formula has it."""
    op = operator_on(name, SIDE, CHANNELS)
    y, A, start, N = measured(op), matrix(op), 0.6, 5
    got = ot_ode(net, op, y, SIGMA, steps=N, start=start, schedule=schedule, spread=spread, generator=seeds(7))
    x = start * back(A, y) + (1 - start) * draws(7)()
    for t in (0.6, 0.8):
        J = torch.autograd.functional.jacobian(lambda x, t=t: at(net, x, t), x).reshape(D, D)
        v = at(net, x, t)
        x_1 = x + (1 - t) * v
        r2 = (1 - t) ** 2 / ((1 - t) ** 2 + spread * t**2)
        inverse = torch.linalg.inv(r2 * A @ A.T + SIGMA**2 * torch.eye(len(A), dtype=torch.float64))
        u = A.T @ inverse @ (y.flatten() - A @ x_1.flatten())
        g = (u + (1 - t) * J.T @ u).reshape(1, *SHAPE)
        gamma = 1.0 if schedule == "constant" else math.sqrt(t / (t**2 + (1 - t) ** 2))
        x = x + (v + (1 - t) / t * gamma * g) / N
    same(got, x)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("steps", [1, 3])
def test_steps_of_pnp_hqs(name, steps, net):
    op = operator_on(name, SIDE, CHANNELS)
    y, A, weight, first = measured(op), matrix(op), 0.4, 0.6
    got = pnp_hqs(as_denoiser(net), op, y, SIGMA, steps=steps, weight=weight, first=first)
    z = first_guess(op, y)
    for s in [SIGMA] if steps == 1 else [first, (first * SIGMA) ** 0.5, SIGMA]:
        rho = weight * SIGMA**2 / s**2
        x = solve(A, rho, back(A, y) + rho * z)
        t = 1 / (1 + s)
        z = t * x + (1 - t) * at(net, t * x, t)
    same(got, z)


@pytest.mark.parametrize("zeta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", OPERATORS)
def test_three_steps_of_diffpir(name, zeta, net):
    """Levels at 1000 - floor(sqrt(0, 1e6 / 2, 1e6)) = 1000, 293, and 1, the last that there is."""
    op = operator_on(name, SIDE, CHANNELS)
    y, A, weight, noise = measured(op), matrix(op), 0.4, draws(7)
    got = diffpir(as_denoiser(net), op, y, SIGMA, steps=3, weight=weight, zeta=zeta, generator=seeds(7))
    product = np.cumprod(1 - np.linspace(1e-4, 2e-2, 1000))
    levels = product[[999, 292, 0]].astype(np.float32).tolist()  # which have single precision
    x = levels[0] ** 0.5 * first_guess(op, y) + (1 - levels[0]) ** 0.5 * noise()
    for a, after in zip(levels, [*levels[1:], None], strict=True):
        s = ((1 - a) / a) ** 0.5
        w, t = x / a**0.5, 1 / (1 + s)
        x_1 = (t * w + (1 - t) * at(net, t * w, t)).clamp(-1, 1)
        rho = weight * SIGMA**2 / s**2
        u = solve(A, rho, back(A, y) + rho * x_1)
        if after is not None:
            mixed = (1 - zeta) ** 0.5 * (w - u) / s + zeta**0.5 * noise()
            x = after**0.5 * u + (1 - after) ** 0.5 * mixed
    torch.testing.assert_close(got, u, rtol=1e-5, atol=1e-5)
