"""PnP-GS: proximal gradient descent, holes that are filled, and where it ends."""

import pytest
import torch
from helpers import images_and_levels, stirred

from firm.baselines import pnp_gs
from firm.networks import GradientStep
from firm.operators import Blur, Identity, Mask, Subsample, first_guess, gaussian_kernel

SMALL = dict(channels=3, side=8, ch=8, mult=(1, 2), blocks=1, attention=(4,), groups=4)


def shrink(x, sigma):
    """A denoiser to compute with by hand: x - grad of (1 + sigma) |x|^2 / 8."""
    return x - (1 + sigma.reshape(-1, 1, 1, 1)) / 4 * x


@pytest.fixture
def gradient_step():
    return stirred(GradientStep(**SMALL).double(), 0.05).requires_grad_(False).eval()


@pytest.mark.parametrize("op", [Blur(gaussian_kernel(5, 1.0)), Subsample(2)], ids=["blur", "super-resolution"])
def test_pnp_gs_is_proximal_gradient_descent(op, gradient_step):
    op = op.double()
    x, _ = images_and_levels()
    y = op.A(x)
    settings = dict(step_length=1.5, relaxation=0.4, factor=1.8)
    seen = []
    got = pnp_gs(gradient_step, op, y, 0.05, steps=2, callback=lambda *v: seen.append(v), **settings)
    x = first_guess(op, y)
    for i in range(2):
        z = x - 1.5 * op.A_adjoint(op.A(x) - y)
        leaf = z.clone().requires_grad_()
        level = torch.full((2,), 0.09, dtype=torch.float64)
        (gradient,) = torch.autograd.grad(gradient_step.potential(leaf, level).sum(), leaf)
        x = z - 0.4 * gradient
        assert seen[i][:2] == (i + 1, 2)
        torch.testing.assert_close(seen[i][2], x)
    torch.testing.assert_close(got, x)
    assert not got.requires_grad


@pytest.mark.parametrize("steps", [1, 3, 22])
def test_pnp_gs_fills_holes(steps):
    mask = (torch.rand(8, 8) < 0.3).double()
    x, _ = images_and_levels()
    y = mask * x + 0.01 * torch.randn_like(x)  # noise where nothing was seen, too, as the tasks have it
    got = pnp_gs(shrink, Mask(mask), y, 0.01, steps=steps)
    x = torch.where(mask == 1, 0.5 * y, 1.5 * y)
    for i in range(steps):
        level = 0.2 if i < 20 else 0.01
        x = (1 - (1 + level) / 4) * x
        if i < steps - 1:
            x = torch.where(mask == 1, y, x)
    torch.testing.assert_close(got, x)


def test_a_mask_with_weights_is_an_operator_like_any_other():
    weights = torch.linspace(0, 1, 64, dtype=torch.float64).reshape(8, 8)
    y = images_and_levels()[0]
    got = pnp_gs(shrink, Mask(weights), y, 0.1, steps=1, step_length=1.0, relaxation=1.0, factor=2.0)
    x = weights * y
    torch.testing.assert_close(got, (1 - 1.2 / 4) * (x - weights * (weights * x - y)))


def test_pnp_gs_denoises_with_one_call(gradient_step):
    y, _ = images_and_levels()
    got = pnp_gs(gradient_step, Identity(), y, 0.2, steps=9, factor=3.0)
    torch.testing.assert_close(got, gradient_step(y, torch.full((2,), 0.2, dtype=torch.float64)))
