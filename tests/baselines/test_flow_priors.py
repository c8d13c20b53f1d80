"""Flow-Priors: its step against the formulas with a dense Jacobian, and runs on small problems."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from firm.baselines import flow_priors
from firm.networks import PriorUNet
from firm.operators import Blur, Fourier, Identity, Mask, Subsample, gaussian_kernel

SIDE = 4


class Gaussian(nn.Module):
    """The velocity of the flow from N(0, I) to N(m, c I)."""

    def forward(self, x, t, m=0.3, c=0.2):
        t = t.reshape(-1, 1, 1, 1)
        return m + (c * t - (1 - t)) / (c * t**2 + (1 - t) ** 2) * (x - t * m)


class Tiny(nn.Module):
    """A small velocity that is not linear, and quick."""

    def __init__(self, channels=1):
        super().__init__()
        self.first, self.last = nn.Conv2d(channels, 4, 3, padding=1), nn.Conv2d(4, channels, 3, padding=1)
        self.double().requires_grad_(False)

    def forward(self, x, t):
        return 2 * self.last(torch.tanh(2 * self.first(x) + t.reshape(-1, 1, 1, 1)))


def small_prior(channels=1):
    net = PriorUNet(channels, side=SIDE, ch=8, mult=(1,), blocks=1, groups=4, attention=()).double()
    g = torch.Generator().manual_seed(1)
    for p in net.parameters():
        p.requires_grad_(False).copy_(0.25 * torch.randn(p.shape, generator=g))
    return net


def images(batch=1, seed=0, channels=1):
    return torch.randn(batch, channels, SIDE, SIDE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def operators():
    mask = (torch.rand(SIDE, SIDE, generator=torch.Generator().manual_seed(2)) < 0.6).double()
    return {
        "mask": Mask(mask),
        "blur": Blur(gaussian_kernel(3, 0.6).double()),
        "subsample": Subsample(2),
        "fourier": Fourier(mask),
    }


def seeds(*numbers):
    return [torch.Generator().manual_seed(n) for n in numbers]


def transcribed(net, op, y, steps, done, updates, rate, weight, generator):
    """The first `done` of `steps` steps for one image: dense Jacobian, torch's Adam, the random numbers in order."""

    def draw():
        return torch.randn(1, 1, SIDE, SIDE, dtype=torch.float64, generator=generator)

    x_init = draw()
    x, dt = x_init, 1 / steps
    for i in range(done):
        t = 0.001 + (1 - 0.001) * (i / steps)
        time = torch.full((1,), t, dtype=torch.float64)
        y_next = (t + dt) * y + (1 - (t + dt)) * op.A(x_init)
        signs = [draw().sign() for _ in range(updates)]
        x = x.detach().clone().requires_grad_()
        adam = torch.optim.Adam([x], lr=rate)
        for e in signs:
            with sdpa_kernel(SDPBackend.MATH):
                jacobian = torch.autograd.functional.jacobian(lambda u: net(u, time), x, create_graph=True)  # noqa: B023
                v = net(x, time)
                loss = weight * (op.A(x + dt * v) - y_next).abs().square().sum()
                loss = loss + dt * e.flatten() @ jacobian.reshape(SIDE**2, SIDE**2) @ e.flatten()
                if i == 0:
                    loss = loss + x.square().sum() / 2
                x.grad = torch.autograd.grad(loss, x)[0]
            if i > 0:
                x.grad += (x.detach() - t * v.detach()) / (1 - t)
            adam.step()
        x = x.detach()
        x = x + dt * net(x, time)
    return x


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize(("name", "network"), [*((name, Tiny) for name in operators()), ("mask", small_prior)])
def test_the_steps_are_the_formulas(name, network, updates):
    """At the first time, and at one after it."""
    net, op, seen = network(), operators()[name], []
    y = op.A(images(1, 5))
    settings = dict(updates=updates, rate=0.05, weight=3.0)
    flow_priors(net, op, y, 0.1, steps=2, **settings, generator=seeds(7), callback=lambda *row: seen.append(row))
    assert [row[:2] for row in seen] == [(1, 2), (2, 2)]
    for done in (1, 2):
        expected = transcribed(net, op, y, 2, done, generator=seeds(7)[0], **settings)
        torch.testing.assert_close(seen[done - 1][2], expected, rtol=1e-7, atol=1e-8)


def test_the_trace_matters_in_these_tests():
    """With no weight on the data and at the first time, all but the trace is x itself: the update would be its sign."""
    net, op, y = small_prior(), Identity(), images(1, 5)
    x_0 = torch.randn(1, 1, SIDE, SIDE, dtype=torch.float64, generator=seeds(7)[0])
    x = flow_priors(net, op, y, 0.1, steps=1, rate=0.01, weight=0.0, generator=seeds(7))
    moved = x_0 - 0.01 * x_0.sign()
    without = moved + net(moved, torch.full((1,), 0.001, dtype=x.dtype))
    assert (x - without).abs().max() > 1e-3


def test_the_state_follows_the_measurements():
    """A strong weight and many steps: the result fits what was measured."""
    op = operators()["mask"]
    x_1 = 0.3 + 0.2**0.5 * images(2, 5)
    y = op.A(x_1)
    x = flow_priors(Gaussian(), op, y, 0.0, steps=100, rate=0.05, weight=1e4, generator=seeds(0, 1))
    assert (op.A(x) - y).abs().max() < 0.1  # the length of two updates
    hidden = x[(op.mask == 0).expand_as(x)]
    assert (hidden - 0.3).abs().max() < 0.15  # where nothing was measured, the most likely value


def test_an_images_result_does_not_depend_on_its_batch():
    net, op = small_prior(), operators()["blur"]
    y = op.A(images(3, 5))
    together = flow_priors(net, op, y, 0.1, steps=5, generator=seeds(3, 4, 5))
    alone = flow_priors(net, op, y[1:2], 0.1, steps=5, generator=seeds(4))
    torch.testing.assert_close(together[1:2], alone, rtol=1e-8, atol=1e-8)
    assert (together[0] - together[1]).abs().max() > 0.1


def test_single_precision_complex_measurements_and_no_grad():
    net, op = small_prior(3).float(), Fourier(operators()["mask"].mask.float())
    y = op.A(images(2, 5, 3).float())
    assert y.is_complex()
    with torch.no_grad():
        x = flow_priors(net, op, y, 0.1, steps=4, generator=seeds(1, 2))
    assert (x.dtype, x.shape, x.requires_grad) == (torch.float32, (2, 3, SIDE, SIDE), False)
    assert torch.equal(x, flow_priors(net, op, y, 0.1, steps=4, generator=seeds(1, 2)))


def test_what_cannot_be_run_is_refused():
    net, op, y = small_prior(), operators()["mask"], images(1)
    with pytest.raises(ValueError, match="steps and updates must be at least 1, got 0 and 1"):
        flow_priors(net, op, y, 0.1, steps=0)
    with pytest.raises(ValueError, match="steps and updates must be at least 1, got 100 and 0"):
        flow_priors(net, op, y, 0.1, updates=0)
    with pytest.raises(ValueError, match="NaN"):
        flow_priors(net, op, y * float("nan"), 0.1)
    with pytest.raises(ValueError, match="sigma"):
        flow_priors(net, op, y, -1.0)
    with pytest.raises(ValueError, match=r"the network is for images \(B, 1, H, W\)"):
        flow_priors(net, op, images(1, channels=3), 0.1)
