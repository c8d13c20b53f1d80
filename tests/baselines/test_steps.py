"""PnP-Flow, Flower, OT-ODE, PnP-HQS and DiffPIR with a network: single steps written down again, batches, errors."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from firm.baselines import as_denoiser, diffpir, flower, ot_ode, pnp_flow, pnp_hqs
from firm.baselines._diffpir import noise_levels
from firm.networks import PriorUNet
from firm.operators import Blur, Identity, Mask, Subsample, from_functions, gaussian_kernel

SIDE, CHANNELS = 8, 2
SHAPE, D = (CHANNELS, SIDE, SIDE), CHANNELS * SIDE * SIDE
SIGMA = 0.15


@pytest.fixture(scope="module")
def net():
    """A velocity that is neither linear nor small."""
    prior = PriorUNet(CHANNELS, side=SIDE, ch=8, mult=(1,), blocks=1, groups=4, attention=()).double()
    g = torch.Generator().manual_seed(1)
    for p in prior.parameters():
        p.requires_grad_(False).copy_(0.25 * torch.randn(p.shape, generator=g))
    return prior


def operator(name):
    g = torch.Generator().manual_seed(2)
    if name == "matrix":  # without a closed form
        M = torch.randn(40, D, dtype=torch.float64, generator=g) / D**0.5
        return from_functions(lambda x: x.flatten(1) @ M.T, lambda y: (y @ M).reshape(-1, *SHAPE))
    mask = (torch.rand(SIDE, SIDE, generator=g) < 0.5).double()
    blur = Blur(gaussian_kernel(5, 0.8).double())
    return {"identity": Identity(), "mask": Mask(mask), "blur": blur, "subsample": Subsample(2)}[name]


def images(batch=1, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(batch, *SHAPE, dtype=torch.float64, generator=g) * 2 - 1


def measured(op, batch=1):
    y = op.A(images(batch, 5))
    return y + SIGMA * torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(6))


def seeds(*numbers):
    return [torch.Generator().manual_seed(n) for n in numbers]


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


# Single steps


@pytest.mark.parametrize("averages", [1, 3])
@pytest.mark.parametrize("name", OPERATORS)
def test_two_steps_of_pnp_flow(name, averages, net):
    op = operator(name)
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
    op = operator(name)
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
    op = operator(name)
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


def enlarged(y):
    """Bicubic interpolation of every second pixel, whose positions are 0, 2, 4, 6 of 8; the rim's pixels go on."""
    rows = torch.zeros(SIDE, SIDE // 2, dtype=torch.float64)
    for i in range(SIDE):
        p = i / 2
        for k in range(math.floor(p) - 1, math.floor(p) + 3):
            d, a = abs(p - k), -0.75
            near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4)
            rows[i, min(max(k, 0), SIDE // 2 - 1)] += near if d <= 1 else far if d < 2 else 0.0
    return rows @ y @ rows.T


def test_the_transcribed_interpolation_is_torchs():
    """Where torch has pixels at the same positions: with aligned corners, 4 to 7 pixels."""
    y = operator("subsample").A(images(1, 5))
    same(enlarged(y)[..., :7, :7], F.interpolate(y, size=(7, 7), mode="bicubic", align_corners=True))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("steps", [1, 3])
def test_steps_of_pnp_hqs(name, steps, net):
    op = operator(name)
    y, A, weight, first = measured(op), matrix(op), 0.4, 0.6
    got = pnp_hqs(as_denoiser(net), op, y, SIGMA, steps=steps, weight=weight, first=first)
    z = enlarged(y) if name == "subsample" else back(A, y)
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
    op = operator(name)
    y, A, weight, noise = measured(op), matrix(op), 0.4, draws(7)
    got = diffpir(as_denoiser(net), op, y, SIGMA, steps=3, weight=weight, zeta=zeta, generator=seeds(7))
    product = np.cumprod(1 - np.linspace(1e-4, 2e-2, 1000))
    levels = product[[999, 292, 0]].astype(np.float32).tolist()  # which have single precision
    x = levels[0] ** 0.5 * (enlarged(y) if name == "subsample" else back(A, y)) + (1 - levels[0]) ** 0.5 * noise()
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


@pytest.mark.parametrize("steps", [1, 2, 10, 100])
def test_diffpirs_levels(steps):
    product = np.cumprod(1 - np.linspace(1e-4, 2e-2, 1000))
    passed = np.minimum(np.floor(np.sqrt(np.linspace(0, 1000**2, steps))).astype(int), 999)
    levels = noise_levels(steps)
    np.testing.assert_allclose(levels.numpy(), product[999 - passed], rtol=1e-7)
    assert len(levels) == steps
    assert bool((levels.diff() > 0).all())


# What they have in common


METHODS = {
    "pnp_flow": (pnp_flow, dict(steps=3, averages=2)),
    "flower": (flower, dict(steps=3, averages=2, gamma=1)),
    "ot_ode": (ot_ode, dict(steps=5, start=0.4)),
    "pnp_hqs": (pnp_hqs, dict(steps=3)),
    "diffpir": (diffpir, dict(steps=3)),
}
CALLBACKS = {"flower": 6}


def network_of(name, net):
    return as_denoiser(net) if name in ("pnp_hqs", "diffpir") else net


@pytest.mark.parametrize("operator_name", ["matrix", "blur", "subsample"])
@pytest.mark.parametrize("name", METHODS)
def test_an_images_result_does_not_depend_on_its_batch(name, operator_name, net):
    method, settings = METHODS[name]
    op = operator(operator_name)
    y = measured(op, 3)
    together = method(network_of(name, net), op, y, SIGMA, generator=seeds(3, 4, 5), **settings)
    alone = method(network_of(name, net), op, y[1:2], SIGMA, generator=seeds(4), **settings)
    torch.testing.assert_close(together[1:2], alone, rtol=1e-7, atol=1e-8)
    assert (together[0] - together[1]).abs().max() > 0.1


@pytest.mark.parametrize("name", METHODS)
def test_a_seed_is_a_result_and_another_seed_another(name, net):
    method, settings = METHODS[name]
    op = operator("blur")
    y = measured(op, 2)
    one, again, other = (
        method(network_of(name, net), op, y, SIGMA, generator=seeds(*s), **settings) for s in ((3, 4), (3, 4), (5, 6))
    )
    assert torch.equal(one, again)
    assert torch.equal(one, other) == (name == "pnp_hqs")  # which draws nothing
    assert not one.requires_grad


@pytest.mark.parametrize("name", METHODS)
def test_the_callback_sees_every_step(name, net):
    method, settings = METHODS[name]
    op, seen = operator("mask"), []
    got = method(network_of(name, net), op, measured(op, 2), SIGMA, generator=seeds(3, 4), **settings,
                 callback=lambda *row: seen.append((*row[:2], row[2].clone())))  # fmt: skip
    total = CALLBACKS.get(name, 3)
    assert [row[:2] for row in seen] == [(i + 1, total) for i in range(total)]
    assert all(row[2].shape == got.shape for row in seen)
    if name == "flower":  # the runs one after the other; their results are averaged
        same(got, (seen[2][2] + seen[5][2]) / 2)
    else:
        assert torch.equal(seen[-1][2], got)
    assert (seen[0][2] - seen[-1][2]).abs().max() > 1e-3


def test_steps_that_nothing_would_do_are_not_made(net):
    """OT-ODE from t_0 = 0.4 in 5 steps makes 3."""
    seen = []
    op = operator("mask")
    ot_ode(net, op, measured(op), SIGMA, steps=5, start=0.4, callback=lambda *row: seen.append(row[:2]))
    assert seen == [(1, 3), (2, 3), (3, 3)]


# Errors, before any work


@pytest.fixture
def idle():
    """A network that must not be called."""

    class Idle(PriorUNet):
        def forward(self, *inputs):
            raise AssertionError("work was done")

    return Idle(CHANNELS, side=SIDE, ch=8, mult=(1, 2), blocks=1, groups=4, attention=())


@pytest.mark.parametrize("name", METHODS)
def test_wrong_measurements_are_refused(name, idle):
    method, settings = METHODS[name]
    method_of = network_of(name, idle)
    y = torch.zeros(1, *SHAPE)
    broken = y.clone()
    broken[0, 0, 1, 1] = float("nan")
    cases = [
        (broken, 0.1, r"1 values of y.*NaN"),
        (y, -0.1, r"sigma, the noise level of y.*-0\.1"),
        (y, float("nan"), "sigma, the noise level of y"),
        (torch.zeros(1, 3, SIDE, SIDE), 0.1, r"the network is for images \(B, 2, H, W\), these are \(1, 3, 8, 8\)"),
        (torch.zeros(1, CHANNELS, SIDE, 7), 0.1, "multiples of 2, the images have 8x7"),
        (torch.zeros(1, CHANNELS, 7, SIDE), 0.1, "multiples of 2, the images have 7x8"),
    ]
    if name in ("flower", "ot_ode", "diffpir"):
        cases.append((y, 0.0, f"{name}: sigma, the noise level of y, must be positive"))
    for wrong, sigma, message in cases:
        with pytest.raises(ValueError, match=message):
            method(method_of, Identity(), wrong, sigma, **settings)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("pnp_flow", dict(steps=0), "pnp_flow: steps and averages must be at least 1, got 0 and 1"),
        ("pnp_flow", dict(averages=0), "pnp_flow: steps and averages must be at least 1, got 100 and 0"),
        ("flower", dict(steps=0), "flower: steps and averages must be at least 1, got 0 and 1"),
        ("flower", dict(averages=-1), "flower: steps and averages"),
        ("flower", dict(gamma=2), "flower: gamma must be 0 or 1, got 2"),
        ("ot_ode", dict(steps=0), r"ot_ode: needs steps >= 1 and start in \(0, 1\), got 0 and 0\.1"),
        ("ot_ode", dict(start=0.0), "ot_ode: needs steps >= 1 and start"),
        ("ot_ode", dict(start=1.0), "ot_ode: needs steps >= 1 and start"),
        ("ot_ode", dict(schedule="linear"), """ot_ode: schedule must be "constant" or "sqrt", got 'linear'"""),
        ("pnp_hqs", dict(steps=0), "pnp_hqs: steps, weight and first must be positive, got 0"),
        ("pnp_hqs", dict(weight=0.0), "pnp_hqs: steps, weight and first"),
        ("pnp_hqs", dict(first=0.0), "pnp_hqs: steps, weight and first"),
        ("diffpir", dict(steps=0), "diffpir: needs steps >= 1, weight > 0, zeta in"),
        ("diffpir", dict(weight=-1.0), "diffpir: needs steps >= 1, weight > 0, zeta in"),
        ("diffpir", dict(zeta=1.5), "diffpir: needs steps >= 1, weight > 0, zeta in"),
    ],
)
def test_wrong_settings_are_refused(name, wrong, message, idle):
    with pytest.raises(ValueError, match=message):
        METHODS[name][0](network_of(name, idle), Identity(), torch.zeros(1, *SHAPE), 0.1, **wrong)


@pytest.mark.parametrize("name", ["pnp_flow", "pnp_hqs"])
def test_measurements_without_noise_are_restored(name, net):
    method, settings = METHODS[name]
    op = operator("blur")
    x = method(network_of(name, net), op, op.A(images(1, 5)), 0.0, generator=seeds(1), **settings)
    assert bool(x.isfinite().all())
