"""Models for color or gray on images of other channels."""

import pytest
import torch
from helpers import rand
from torch import nn

import firm
from firm._channels import PerChannel, independent
from firm.data import portrait
from firm.metrics import psnr
from firm.noise import Gaussian, Poisson
from firm.operators import Fourier, Identity, Mask, as_real, to_real


def tiny_model(channels=1, noise_level=True):
    torch.manual_seed(0)
    net = firm.UNet(channels, side=16, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, noise_level=noise_level)
    return firm.Firm(net, firm.Solver(K=2))


class OfColor(nn.Module):
    """Averages the colors, and tells what it was given."""

    def __init__(self, channels: int = 3):
        super().__init__()
        self.config, self.given = {"channels": channels, "noise_level": True}, []

    def forward(self, x, x_t, t, sigma):
        self.given.append((x.shape, t, sigma))
        return x.mean(1, keepdim=True).expand_as(x)


def test_copies_have_independent_noise_around_the_measurement():
    y = torch.zeros(2, 1, 200, 200)
    sigma = torch.tensor([0.1, 0.3])
    noisy = y + sigma[:, None, None, None] * torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    many, level = independent(Identity(), noisy, sigma, sigma, 3)
    copies = many.unflatten(0, (3, 2))
    torch.testing.assert_close(copies.mean(0), noisy)
    torch.testing.assert_close(level, 3**0.5 * sigma.repeat(3))
    for i in range(2):
        covariance = torch.cov(copies[:, i].flatten(1)) / sigma[i] ** 2
        torch.testing.assert_close(covariance, 3 * torch.eye(3), atol=0.05, rtol=0)


def test_a_map_of_noise_goes_with_the_copies():
    std = 0.1 + rand(16, 16)
    y = rand(1, 1, 16, 16)
    noise = Gaussian(std).on(Identity(), y, y)
    many, wide = independent(Identity(), y, noise.level(y), noise, 3)
    torch.testing.assert_close(many.unflatten(0, (3, 1)).mean(0), y)
    torch.testing.assert_close(wide.std(many)[2, 0], 3**0.5 * std)


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_every_channel_is_a_picture(channels):
    net = OfColor()
    model = firm.Firm(net, firm.Solver(K=1, rho=1e6, beta=1.0))  # z is what the network says of z
    x = rand(2, channels, 8, 8)
    wrapped = PerChannel(net, 3, 2, channels)
    many = x.repeat(3, 1, 1, 1)
    many[:2] += 3.0  # of the first copies: the network's mean is 1 higher
    out = wrapped(many, many, torch.arange(6.0) % 2, torch.arange(6.0) % 2)
    torch.testing.assert_close(out, (x + 1).repeat(3, 1, 1, 1))
    shape, t, _ = net.given[-1]
    assert shape == (2 * channels, 3, 8, 8)
    assert t.tolist() == [0.0] * channels + [1.0] * channels
    r = firm.restore(model, Identity(), x, steps=1, samples=2, sigma=0.1)
    assert (r.samples.shape, r.nfe) == ((2, 2, channels, 8, 8), 2)
    torch.testing.assert_close(net.given[-1][2], torch.full((4 * channels,), 0.1 * 3**0.5))


def test_a_model_of_gray_takes_the_channels_one_by_one():
    model, x = tiny_model(), rand(2, 3, 16, 16)
    x_0 = rand(2, 3, 16, 16)
    op = Mask(torch.ones(16, 16))
    together = firm.sample(model, op, x, 2, sigma=0.1, x_0=x_0)
    for c in range(3):
        alone = firm.sample(model, op, x[:, c : c + 1], 2, sigma=0.1, x_0=x_0[:, c : c + 1])
        torch.testing.assert_close(together[:, c : c + 1], alone, rtol=1e-4, atol=1e-5)


def test_other_networks_say_that_they_do_not_fit():
    with pytest.raises(ValueError, match="takes images"):
        firm.sample(tiny_model(channels=2), Identity(), rand(1, 3, 16, 16), 1, sigma=0.1)


def test_the_bundled_model_restores_gray_and_complex_images():
    """The portrait in gray, and as the magnitude of a complex image that is measured in k-space."""
    model, x = firm.load("face-128"), portrait()
    gray = x.mean(1, keepdim=True)
    y = gray + 0.2 * torch.randn(gray.shape, generator=torch.Generator().manual_seed(1))
    assert psnr(firm.restore(model, Identity(), y, 1, sigma=0.2).image, gray) > psnr(y, gray) + 9
    phase = torch.exp(1j * torch.linspace(-1, 1, 128))
    image = (gray + 1) / 2 * phase
    mask = torch.zeros(128, 128)
    mask[:, ::3] = mask[:, :12] = mask[:, -12:] = 1
    op = as_real(Fourier(mask, complex_images=True))
    clean = op.A(to_real(image))
    y = clean + 0.02 * torch.randn(clean.shape, dtype=clean.dtype, generator=torch.Generator().manual_seed(2))
    r = firm.restore(model, op, mask * y, 1, sigma=0.02, final_solve=True)
    found = torch.complex(*r.image.chunk(2, 1)).abs()
    zero_filled = torch.complex(*op.A_adjoint(y).chunk(2, 1)).abs()
    target = image.abs()
    assert psnr(2 * found - 1, 2 * target - 1) > psnr(2 * zero_filled - 1, 2 * target - 1) + 5
    assert r.residual.item() < 1.02


def test_photons_of_a_gray_picture():
    gray = portrait().mean(1, keepdim=True)
    noise = Poisson(2 / 30)
    y = noise.on(Identity(), gray, gray).draw(gray, torch.Generator().manual_seed(0))
    restored = firm.restore(firm.load("face-128"), Identity(), y, 1, sigma=noise).image
    assert psnr(restored, gray) > psnr(y, gray) + 8
