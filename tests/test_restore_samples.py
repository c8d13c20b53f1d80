"""`firm.restore` with several samples: as if drawn one by one, whatever the operator, within a bound on memory."""

import time

import pytest
import torch
from helpers import rand
from torch import nn

import firm
from firm import _restore
from firm._prepare import noise_like
from firm.noise import Gaussian
from firm.operators import Blur, Fourier, Identity, Mask, from_functions, gaussian_kernel, random_mask
from firm.operators.compose import Repeated


def tiny_model(channels=1, noise_level=True):
    torch.manual_seed(0)
    net = firm.UNet(channels, side=16, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, noise_level=noise_level)
    return firm.Firm(net, firm.Solver(K=2))


class Recorder(nn.Module):
    """A small network that depends on all its inputs, and notes the sizes of its batches."""

    def __init__(self):
        super().__init__()
        self.config = {"noise_level": True, "channels": 2}
        self.conv = nn.Conv2d(4, 2, 3, padding=1)
        self.batches = []

    def forward(self, x, x_t, t, sigma):
        self.batches.append(len(x))
        scale = (1 + t + 10 * sigma).reshape(-1, 1, 1, 1)
        return self.conv(torch.cat([x, x_t], 1)).tanh() * scale


def small(batch=1):
    """What `restore` takes: a model of one iteration, an operator, and measurements."""
    return firm.Firm(Recorder(), firm.Solver(K=1)), Identity(), torch.rand(batch, 2, 8, 8)


class Scaled:
    """No module, no closed form, one factor for each of the images."""

    def __init__(self, factor):
        self.factor = factor.reshape(-1, 1, 1, 1)

    def A(self, x):
        return self.factor * x

    def A_adjoint(self, y):
        return self.factor * y


def masks(n):
    return torch.stack([random_mask((8, 8), 0.5, torch.Generator().manual_seed(i)) for i in range(n)])[:, None]


OPERATORS = {
    "identity": (lambda: Identity(), lambda i: Identity()),
    "masks of single images": (lambda: Mask(masks(3)), lambda i: Mask(masks(3)[i])),
    "complex measurements": (lambda: Fourier(masks(3)), lambda i: Fourier(masks(3)[i])),
    "no closed form": (
        lambda: Scaled(torch.tensor([0.5, 1.0, 2.0])),
        lambda i: Scaled(torch.tensor([0.5, 1.0, 2.0])[i : i + 1]),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_are_those_of_single_calls(name):
    whole, single = OPERATORS[name]
    model = firm.Firm(Recorder(), firm.Solver(K=2))
    x = torch.rand(3, 2, 8, 8) * 2 - 1
    op = whole()
    y, sigma = op.A(x), torch.tensor([0.1, 0.3, 0.05])
    found = firm.restore(model, op, y, steps=3, samples=4, seed=7, sigma=sigma)
    assert found.samples.shape == (4, 3, 2, 8, 8)
    generator = torch.Generator().manual_seed(7)
    for s in range(4):
        x_0 = noise_like(x, generator)
        for i in range(3):  # image by image
            alone = firm.sample(model, single(i), y[i : i + 1], 3, sigma=float(sigma[i]), x_0=x_0[i : i + 1])
            torch.testing.assert_close(found.samples[s, i], alone[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.mean, found.samples.mean(0))
    torch.testing.assert_close(found.std, found.samples.std(0))
    assert torch.equal(found.image, found.samples[0])
    assert found.nfe == 4 * 3 * 2
    fewer = firm.restore(model, op, y, steps=3, samples=2, seed=7, sigma=sigma).samples
    torch.testing.assert_close(fewer, found.samples[:2], rtol=1e-4, atol=1e-5)  # more samples keep the first


def test_one_level_for_all_is_the_same_level_for_each():
    given = small(2)
    levels = (0.2, torch.tensor(0.2), torch.tensor([0.2, 0.2]), torch.tensor([0.2, 0.3]))
    a, b, c, other = (firm.restore(*given, samples=3, sigma=sigma).samples for sigma in levels)
    assert torch.equal(a, b)
    assert torch.equal(a, c)
    assert not torch.equal(a, other)


@pytest.mark.parametrize(("batch", "room", "expected"), [(2, 6, [6, 6, 2]), (2, 7, [6, 6, 2]), (1, 3, [3, 3, 1]),
                                                         (5, 2, [5] * 7), (1, 100, [7])])  # fmt: skip
def test_memory_is_bounded(batch, room, expected, monkeypatch):
    """Batches of at most `room` images, unless the measurement itself is larger."""
    monkeypatch.setattr(_restore, "AT_ONCE", room * 8 * 8)
    given, settings = small(batch), dict(steps=1, samples=7, seed=1, sigma=0.1)
    found = firm.restore(*given, **settings).samples
    assert given[0].estimator.batches == expected
    monkeypatch.setattr(_restore, "AT_ONCE", 10**9)
    torch.testing.assert_close(found, firm.restore(*given, **settings).samples, rtol=1e-4, atol=1e-5)


def test_a_repeated_operator_keeps_what_the_solve_asks_of_it():
    op = from_functions(lambda x: 2 * x, lambda y: 2 * y)
    op.cg_tol, op.cg_iterations = 0.0, 3
    many = Repeated(op, 2)
    assert (many.cg_tol, many.cg_iterations) == (0.0, 3)
    assert not many.closed_form
    closed = Repeated(Mask(masks(2)), 2)
    z, y = torch.randn(6, 1, 8, 8), torch.randn(6, 1, 8, 8)
    gamma = torch.linspace(0.5, 3, 6).reshape(-1, 1, 1, 1)
    mask = masks(2).repeat(3, 1, 1, 1)
    for g in (gamma, 2.0, torch.tensor(2.0)):
        torch.testing.assert_close(closed.prox_l2(z, y, g), (g * mask * y + z) / (g * mask + 1))


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_statistics_without_keeping_the_samples(samples, monkeypatch):
    monkeypatch.setattr(_restore, "AT_ONCE", 3 * 8 * 8)
    given, seen = (*small(), 2, samples), []
    kept = firm.restore(*given, sigma=0.1)
    found = firm.restore(*given, sigma=0.1, keep=False, on_sample=lambda i, x: seen.append((i, x.clone())))
    assert [i for i, _ in seen] == list(range(samples))
    assert torch.equal(torch.stack([x for _, x in seen]), kept.samples)
    assert torch.equal(found.image, kept.image)
    torch.testing.assert_close(found.mean, kept.mean)
    assert (found.std is None) == (kept.std is None) == (samples == 1)
    if kept.std is not None:
        torch.testing.assert_close(found.std, kept.std, rtol=1e-4, atol=1e-6)
    assert (found.samples.shape, found.nfe) == ((0, 1, 2, 8, 8), kept.nfe)


def test_time_away_does_not_count():
    assert firm.restore(*small(), 1, 2, sigma=0.1, on_sample=lambda i, x: time.sleep(0.4)).seconds < 0.7


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"seed": 0.5}, "seed must be a whole number .*got 0.5"),
        ({"seed": 2**32}, "got 4294967296"),  # torch keeps 32 bits: these would be the samples of seed 0
        ({"seed": -1}, "got -1"),
    ],
)
def test_what_is_no_number_is_said(wrong, said):
    with pytest.raises(ValueError, match=said):
        firm.restore(*small(), **{"sigma": 0.1, **wrong})


def test_a_sigma_of_0_to_255_is_warned_of():
    with pytest.warns(UserWarning, match="sigma 25 is more than images in"):
        firm.restore(*small(), sigma=25)


def test_a_restoration_is_shown_in_one_line():
    assert repr(firm.restore(*small(2), samples=3, sigma=0.1)).startswith(
        "Restoration(image (2, 2, 8, 8), 3 samples, 6 network calls, "
    )


def test_noise_of_the_same_seed_is_noticed():
    """torch.manual_seed(0), y = x + noise, restore(seed=0): one noise twice, where two are meant."""
    model, x = firm.Firm(Recorder().eval(), firm.Solver(K=1)), torch.linspace(-1, 1, 2048).reshape(1, 2, 32, 32)
    for sigma, shape in ((0.1, x.shape), (0.5, (1, 2, 32, 31))):  # not as many values: the first ones are the same
        torch.manual_seed(3)
        y = x[..., : shape[-1]] + sigma * torch.randn(shape)
        with pytest.warns(UserWarning, match=r"resembles the noise that seed=3 starts from \(correlation 0"):
            firm.restore(model, Identity(), y, seed=3, sigma=sigma)
        firm.restore(model, Identity(), y, seed=4, sigma=sigma)  # warnings are errors here
    small = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0))  # too little to tell
    firm.restore(model, Identity(), small, seed=0, sigma=0.1)


def test_the_residual_is_that_of_the_image_in_units_of_the_noise():
    """A mask: what is not seen does not count; a model of the noise: each measurement has its own unit."""
    mask = (rand(16, 16) > 0.4).float()
    x, std = 2 * rand(2, 1, 16, 16) - 1, 0.1 + rand(16, 16)
    for noise, each in ((0.2, torch.full((16, 16), 0.2)), (Gaussian(std), std)):
        r = firm.restore(tiny_model(), Mask(mask), mask * x, 1, sigma=noise)
        seen = mask.bool()
        square = ((r.image - x) / each).square()[..., seen].flatten(1).mean(1)
        torch.testing.assert_close(r.residual, square.sqrt())
    assert firm.restore(tiny_model(noise_level=False), Mask(mask), mask * x, 1).residual is None


def test_an_image_that_contradicts_its_measurements_is_told_of(recwarn):
    op, x = Mask(torch.ones(16, 16)), rand(1, 1, 16, 16)
    with pytest.warns(UserWarning, match=r"A x differs from y by \d+\.\d times the noise level"):
        far = firm.restore(tiny_model(), op, x, 1, sigma=1e-3)
    near = firm.restore(tiny_model(), op, x, 1, sigma=1e-3, final_solve=True)
    assert far.residual > 2
    assert near.residual.item() == pytest.approx(1, abs=0.02)


def test_the_final_solve_stops_where_the_noise_begins():
    """Each image of a batch has its own rho: the largest with a residual of 1; where it is below 1 nothing is done."""
    blur = Blur(gaussian_kernel(5, 1.0))
    x = 2 * rand(2, 1, 16, 16) - 1
    y = blur.A(x) + torch.tensor([0.01, 4.0]).reshape(2, 1, 1, 1) * rand(2, 1, 16, 16)
    given = firm.prepare(None, blur, y, torch.tensor([0.01, 5.0]))
    start = torch.zeros_like(x)
    moved = given.fitted(start)
    assert torch.equal(moved[1], start[1])
    assert given.residual(moved)[0].item() == pytest.approx(1, abs=0.02)
    gradient = blur.A_adjoint(blur.A(moved) - y)[0]  # of |A x - y|^2 / 2; at the minimum it is rho (start - moved)
    rho = (gradient / (start - moved)[0]).flatten().median()
    torch.testing.assert_close(gradient, rho * (start - moved)[0], rtol=1e-2, atol=1e-4)
    with pytest.raises(ValueError, match="give sigma"):
        firm.prepare(None, blur, y).fitted(x)
