"""I2SB: its schedule, the sampler in closed form and step by step, what its network sees."""

import numpy as np
import pytest
import torch
from torch import nn

import firm
from bridge_helpers import Both, Wave, numpy_schedule
from firm.baselines import i2sb
from firm.baselines._i2sb import TIMES, _spaced, degraded_image, mode_of, schedule
from firm.networks import PriorResUNet, ResUNet
from firm.operators import Blur, Downsample, Fourier, Identity, Mask, Subsample, box_mask, first_guess, gaussian_kernel
from firm.tasks import Task


@pytest.mark.parametrize("beta_max", [0.3, 1.0])
def test_schedule(beta_max):
    beta, s2, sbar2 = numpy_schedule(beta_max)
    found = schedule(beta_max)
    np.testing.assert_allclose(found[0].numpy(), s2, rtol=1e-12)
    np.testing.assert_allclose(s2 + sbar2, beta.sum() + beta)
    share, variance = found[1:]
    np.testing.assert_allclose(share.numpy(), s2 / (s2 + sbar2), rtol=1e-12)
    torch.testing.assert_close(share + share.flip(0), torch.ones(1000, dtype=torch.float64))
    np.testing.assert_allclose(variance.numpy(), s2 * sbar2 / (s2 + sbar2))
    assert (TIMES[0], TIMES[-1]) == (1e-4, 1)


class Oracle:
    """Knows the clean images, and keeps what it was called with."""

    def __init__(self, clean, beta_max):
        self.clean, self.s = clean, schedule(beta_max)[0].sqrt()
        self.calls = []

    def __call__(self, x, t):
        n = (TIMES - t[0].double()).abs().argmin()
        self.calls.append((int(n), x.clone()))
        assert t.shape == (len(x),)
        return (x - self.clean) / self.s[n].to(x.dtype)


@pytest.mark.parametrize("steps", [1, 7, 100, 999])
def test_with_a_perfect_network_the_ode_ends_at_the_clean_image(steps):
    """All but the share s_0^2 / s_999^2 of the degraded image, whatever the number of steps."""
    clean, degraded = torch.randn(2, 1, 4, 4).double(), torch.randn(2, 1, 4, 4).double()
    oracle = Oracle(clean, 1.0)
    x = i2sb(oracle, Identity(), degraded, 0.1, steps=steps)
    s2 = numpy_schedule(1.0)[1]
    torch.testing.assert_close(x, clean + s2[0] / s2[-1] * (degraded - clean), rtol=1e-9, atol=1e-12)
    assert [n for n, _ in oracle.calls] == _spaced(steps)[:0:-1]
    for n, state in oracle.calls:
        torch.testing.assert_close(state, clean + s2[n] / s2[-1] * (degraded - clean), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_with_a_perfect_network_the_steps_draw_from_the_bridge(steps):
    """Chained posteriors are the Brownian bridge from the degraded image: its mean and variance at every step."""
    clean, degraded = (torch.full((1, 1, 200, 200), v, dtype=torch.float64) for v in (0.3, -0.6))
    oracle = Oracle(clean, 0.3)
    x = i2sb(oracle, Identity(), degraded, 0.1, steps=steps, beta_max=0.3, ode=False)
    beta, s2, _ = numpy_schedule(0.3)
    S2 = s2[-1]
    for n, state in oracle.calls:
        expected = s2[n] * (S2 - s2[n]) / S2
        deviation = state - (0.3 - 0.9 * s2[n] / S2)
        assert float(deviation.square().mean()) == pytest.approx(expected, rel=0.04, abs=1e-18)
        assert abs(float(deviation.mean())) <= 5 * expected**0.5 / 200 + 1e-9
        # and that is q(x_n | clean, degraded), but for the beta_n that q counts twice
        assert float(schedule(0.3)[2][n]) == pytest.approx(expected, abs=1.1 * beta[n])
    # the last step shrinks the noise of the one before, and adds none
    n = _spaced(steps)[1]
    expected = (s2[0] / s2[n]) ** 2 * s2[n] * (S2 - s2[n]) / S2
    assert float((x - (0.3 - 0.9 * s2[0] / S2)).square().mean()) == pytest.approx(expected, rel=0.04, abs=1e-18)


@pytest.mark.parametrize("ode", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_two_steps_are_those_of_the_publication(ode, masked):
    mask = (torch.rand(6, 6) > 0.5).float()
    op = Mask(mask) if masked else Identity()
    y = op.A(torch.randn(2, 3, 6, 6))
    found = i2sb(Wave(), op, y, 0.1, steps=2, beta_max=0.5, ode=ode, generator=torch.Generator().manual_seed(4))

    g = torch.Generator().manual_seed(4)
    _, s2, sbar2 = numpy_schedule(0.5)
    filling = torch.randn(2, 3, 6, 6, generator=g)
    start = mask * y + (1 - mask) * filling if masked else y
    x = start
    for n, m in ((999, 500), (500, 0)):
        t = 1e-4 + n / 999 * (1 - 1e-4)
        clean = x - s2[n] ** 0.5 * ((2 * x.roll(1, -1)).sin() + t)
        delta = s2[n] - s2[m]
        x = (delta * clean + s2[m] * x) / (s2[m] + delta)
        known = start
        if not ode and m > 0:
            eps = torch.randn(2, 3, 6, 6, generator=g)
            x = x + (s2[m] * delta / (s2[m] + delta)) ** 0.5 * eps
            known = start + (s2[m] * sbar2[m] / (s2[m] + sbar2[m])) ** 0.5 * eps
        x = mask * known + (1 - mask) * x if masked else x
    torch.testing.assert_close(found, x, rtol=1e-5, atol=1e-5)
    if masked:
        assert torch.equal(found * mask, y)  # seen pixels keep their noise


@pytest.mark.parametrize(
    ("task", "ode"),
    [("deblurring", None), ("super-resolution", None), ("random-inpainting", None), ("denoising", False),
     ("super-resolution", True)],
)  # fmt: skip
def test_a_conditioned_network_sees_the_degraded_image_too(task, ode):
    """As a network that has the image at hand. Its holes are 0 there, and not the noise of the state. On a bridge
    without noise and without holes it is 0, because state and degraded image would determine the clean one."""
    x = torch.rand(2, 3, 16, 16) * 2 - 1
    op, y = Task(task, 16).measure(x)
    image = first_guess(op, y) if task != "random-inpainting" else y * op.mask
    if ode or task == "deblurring":
        image = torch.zeros_like(image)
    settings = dict(steps=3, ode=ode, generator=torch.Generator().manual_seed(4))
    found = i2sb(Both(), op, y, 0.1, conditioned=True, **settings)
    settings["generator"].manual_seed(4)
    torch.testing.assert_close(i2sb(lambda x, t: Both()(x, image, t), op, y, 0.1, **settings), found)


def test_the_network_says_whether_it_is_conditioned():
    y, op = torch.rand(1, 3, 16, 16), Identity()
    net = ResUNet(3, widths=(8, 16), blocks=1)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.1)
    restored = i2sb(net, op, y, 0.1, steps=2, conditioned=True)
    torch.testing.assert_close(i2sb(net, op, y, 0.1, steps=2), restored)
    torch.testing.assert_close(i2sb(firm.acceleration.fast_network(net, "float32"), op, y, 0.1, steps=2), restored)
    with pytest.raises(ValueError, match="this network sees 1 image; a bridge sees its state"):
        i2sb(PriorResUNet(3, widths=(8, 16), blocks=1), op, y, 0.1, conditioned=True)
    with pytest.raises(ValueError, match="this network sees 2 images; a bridge"):
        i2sb(net, op, y, 0.1, conditioned=False)
    with pytest.raises(ValueError, match="this network sees 3 images"):
        i2sb(ResUNet(3, widths=(8, 16), blocks=1, extra=("previous",)), op, y, 0.1)


@pytest.mark.parametrize(
    ("op", "mode", "start"),
    [
        (Identity(), (1.0, True), lambda op, y: y),
        (Blur(gaussian_kernel(5, 1.0)), (1.0, True), lambda op, y: y),
        (Subsample(2), (0.3, False), first_guess),
        (Downsample(2, "bicubic"), (0.3, False), first_guess),
        (Fourier(torch.ones(16, 16)), (1.0, True), lambda op, y: op.A_adjoint(y)),
    ],
)
def test_the_degraded_image(op, mode, start):
    y = op.A(torch.rand(2, 3, 16, 16) * 2 - 1)
    image, known, _ = degraded_image(op, y, torch.randn(2, 3, 16, 16), ode=True)
    assert torch.equal(image, start(op, y))
    assert known is None
    assert mode_of(op) == mode


def test_holes_hold_noise_at_first_and_weights_are_divided_out():
    x, noise = torch.rand(2, 3, 16, 16) * 2 - 1, torch.randn(2, 3, 16, 16)
    op = Mask(box_mask((16, 16), 6) * 0.5)
    image, known, _ = degraded_image(op, op.A(x), noise, ode=True)
    assert torch.equal(known, op.mask > 0)
    assert torch.equal(image, torch.where(known, x, noise))
    assert mode_of(op) == (1.0, True)
