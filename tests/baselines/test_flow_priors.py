"""Flow-Priors: its step against the formulas with a dense Jacobian."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from firm.baselines import flow_priors
from flow_helpers import Tiny, operator_on, seeds, small_network

SIDE = 4


def images(batch=1, seed=0):
    return torch.randn(batch, 1, SIDE, SIDE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def transcribed(net, op, y, steps, done, updates, lr, weight, generator):
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
        adam = torch.optim.Adam([x], lr=lr)
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
@pytest.mark.parametrize(
    ("name", "network"),
    [*((name, Tiny) for name in ("mask", "blur", "subsample", "fourier")), ("mask", lambda: small_network(side=SIDE))],
)
def test_the_steps_are_the_formulas(name, network, updates):
    """At the first time, and at one after it."""
    net, op, seen = network(), operator_on(name, SIDE), []
    y = op.A(images(1, 5))
    settings = dict(updates=updates, lr=0.05, weight=3.0)
    flow_priors(net, op, y, 0.1, steps=2, **settings, generator=seeds(7), callback=lambda *row: seen.append(row))
    assert [row[:2] for row in seen] == [(1, 2), (2, 2)]
    for done in (1, 2):
        expected = transcribed(net, op, y, 2, done, generator=seeds(7)[0], **settings)
        torch.testing.assert_close(seen[done - 1][2], expected, rtol=1e-7, atol=1e-8)
