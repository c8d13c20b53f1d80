"""Maps are recovered from the measurements they made, noise is whitened, and nothing simulated waits for the device."""

import math

import pytest
import torch
from helpers import Watch

from firm.operators.coils import (
    edge_covariance,
    edge_samples,
    espirit_maps,
    noise_covariance,
    simulated_maps,
    smooth_phase,
    whiten,
)

SHIFT = {"dim": (-2, -1)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def head(H, W):
    """A disc with a pattern, and nothing around it."""
    y, x = torch.linspace(-1, 1, H)[:, None], torch.linspace(-1, 1, W)
    inside = ((y / 0.8) ** 2 + (x / 0.7) ** 2 < 1).float()
    return inside * (1 + 0.3 * torch.sin(9 * x) * torch.cos(7 * y)) * torch.exp(1j * x), inside


def coil_kspace(image, maps):
    images = torch.fft.ifftshift(maps * image, **SHIFT)
    return torch.fft.fftshift(torch.fft.fft2(images, norm="ortho"), **SHIFT)


def test_espirit_recovers_the_maps_inside_the_body():
    H, W = 48, 56
    maps = simulated_maps(torch.rand(1, 4, 6, generator=generator()), torch.tensor([4]), (H, W))[0]
    image, inside = head(H, W)
    kspace = coil_kspace(image, maps)
    kspace = kspace + 1e-3 * torch.randn(kspace.shape, dtype=kspace.dtype, generator=generator(1))
    found = espirit_maps(kspace[:, 12:36, 16:40], (H, W))
    rim = torch.nn.functional.max_pool2d(1 - inside[None, None], 5, 1, 2)[0, 0]  # less certain there
    core = (inside > 0) & (rim == 0)
    assert (found.abs().sum(0)[core] > 0).all()
    cosine = (maps.conj() * found).sum(0).abs()[core]
    assert cosine.min() > 0.98
    assert cosine.mean() > 0.998
    torch.testing.assert_close(found.abs().square().sum(0)[core], torch.ones(int(core.sum())))
    explained = found * (found.conj() * maps * image).sum(0)
    assert (explained - maps * image).abs()[:, core].max() < 0.2 * image.abs().max()
    assert (found[:, 0, 0] == 0).all()


def test_maps_of_one_coil_and_of_coils_without_a_signal():
    image, inside = head(40, 40)
    one = espirit_maps(coil_kspace(image, torch.ones(1, 1, 1))[:, 8:32, 8:32], (40, 40))
    torch.testing.assert_close(one.abs()[0][inside > 0], torch.ones(int(inside.sum())))
    for region in (torch.zeros(2, 24, 24, dtype=torch.complex64), torch.ones(2, 6, 24, dtype=torch.complex64)):
        with pytest.raises(ValueError, match="calibration region"):
            espirit_maps(region, (40, 40))


def test_simulated_maps_are_smooth_and_of_as_many_coils_as_are_asked_for():
    count = torch.tensor([1, 3, 8])
    maps = simulated_maps(torch.rand(3, 8, 6, generator=generator()), count, (32, 40))
    torch.testing.assert_close(maps.abs().square().sum(1), torch.ones(3, 32, 40))
    assert ((maps.abs().amax((2, 3)) > 0).sum(1) == count).all()
    assert (maps[..., 1:] - maps[..., :-1]).abs().max() < 0.35
    seen = maps[2].abs().flatten(1)
    assert (seen.amax(1) > 1.5 * seen.amin(1)).all()  # each coil sees its side better


def test_smooth_phases_have_the_strength_that_is_asked_for():
    strength = torch.tensor([0.0, 0.5, 1.0])
    u = torch.rand(600, 4, 4, generator=generator())
    phi = smooth_phase(u, strength.repeat(200), (24, 20))
    torch.testing.assert_close(phi.abs(), torch.ones_like(phi.abs()))
    steps = (phi[..., 1:] * phi[..., :-1].conj()).angle().square().mean((1, 2, 3)).reshape(200, 3).mean(0).sqrt()
    assert steps[0] < 1e-5
    assert steps[2] == pytest.approx(2 * float(steps[1]), rel=0.1)
    spread = (phi[:, 0] * torch.polar(torch.ones(600), -2 * math.pi * u[:, 0, 0])[:, None, None]).angle()
    assert spread.reshape(200, 3, -1)[:, 1].square().mean().sqrt() == pytest.approx(0.5, rel=0.1)


def test_simulation_waits_for_nothing():
    u, count = torch.rand(2, 4, 6), torch.tensor([2, 4])
    with Watch() as watch:
        simulated_maps(u, count, (8, 9))
        smooth_phase(u[:, :, :4], torch.ones(2), (8, 9))
    assert watch.waits() == set()


def test_whitened_noise_is_independent_with_a_variance_of_1():
    mix = torch.randn(3, 3, dtype=torch.complex64, generator=generator())
    noise = mix @ torch.randn(3, 20000, dtype=torch.complex64, generator=generator(1))
    covariance = noise_covariance(noise)
    torch.testing.assert_close(covariance, mix @ mix.mH, rtol=0.05, atol=0.1)
    white = noise_covariance(whiten(noise, covariance))
    torch.testing.assert_close(white, torch.eye(3, dtype=torch.complex64), rtol=0, atol=1e-3)
    copies = noise[:1].expand(2, -1)
    assert whiten(copies, noise_covariance(copies)).isfinite().all()
    few = noise_covariance(noise[:, :20])
    torch.testing.assert_close(few, few[0, 0] * torch.eye(3))
    with pytest.raises(ValueError, match="noise_covariance"):
        noise_covariance(torch.zeros(2, 100, dtype=torch.complex64))


def test_the_edge_of_kspace_holds_the_noise():
    image, _ = head(64, 64)
    kspace = coil_kspace(image, torch.ones(2, 1, 1))
    kspace = kspace + 0.2 * torch.randn(2, 64, 64, dtype=torch.complex64, generator=generator())
    level = edge_samples(kspace).abs().square().mean().sqrt()
    assert level == pytest.approx(0.2, rel=0.1)
    kspace[:, :, ::2] = 0  # not measured
    assert (edge_samples(kspace) != 0).all()
    y, x = torch.meshgrid(torch.arange(64) - 32, torch.arange(64) - 32, indexing="ij")
    ellipse = kspace * (y**2 + x**2 < 30**2)
    assert edge_samples(ellipse).abs().square().mean().sqrt() == pytest.approx(0.2, rel=0.15)


def test_noise_at_the_edge_has_its_covariance_and_an_image_there_is_not_taken_for_it():
    mix = torch.randn(3, 3, dtype=torch.complex64, generator=generator())
    noise = (mix @ torch.randn(3, 9216, dtype=torch.complex64, generator=generator(1))).reshape(3, 96, 96)
    torch.testing.assert_close(edge_covariance(noise), mix @ mix.mH, rtol=0.1, atol=0.4)
    y, x = torch.linspace(-1, 1, 96)[:, None], torch.linspace(-1, 1, 96)
    image = 500 * torch.ones(3, 1, 1) * torch.exp(-5 * torch.hypot(x, y)) * torch.exp(20j * x * y)
    found = edge_covariance(noise + image)
    torch.testing.assert_close(found, found[0, 0] * torch.eye(3))
    assert 1 < float(found[0, 0].real) / float((mix @ mix.mH).diagonal().real.mean()) < 2
    with pytest.raises(ValueError, match="zeros"):
        edge_covariance(0 * noise)
