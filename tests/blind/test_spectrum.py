"""What the spectrum tells of a blur, beside direct computations and pictures whose blur is known."""

import math

import pytest
import torch

from blind_helpers import blurred, leaves
from firm.blind.spectrum import LEAST, Spectrum, best_gaussian, best_motion
from firm.operators import gaussian_kernel, motion_kernel


@pytest.fixture(scope="module")
def picture():
    return leaves(192, 400)


def spectrum(picture, kernel, noise=0.01):
    return Spectrum(blurred(picture, kernel, noise).mean(1)[0])


def test_the_transfer_is_the_sum_over_the_kernel(picture):
    found = spectrum(picture, torch.ones(1, 1))
    kernel = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    kernel = kernel / kernel.sum()
    for n in (0, 100, len(found.f) - 1):
        fy, fx = float(found.fy[n]), float(found.fx[n])
        phases = ((i, j, -2 * math.pi * (fy * i + fx * j)) for i in range(5) for j in range(7))
        H = sum(float(kernel[i, j]) * complex(math.cos(phase), math.sin(phase)) for i, j, phase in phases)
        assert float(found.transfer(kernel[None])[0, n]) == pytest.approx(math.log(abs(H) ** 2 + LEAST), abs=1e-4)


def test_the_gaussians_formula_is_that_of_its_kernel(picture):
    found = spectrum(picture, torch.ones(1, 1))
    both = found.gaussians(torch.tensor([1.3]))[0].exp(), found.transfer(gaussian_kernel(21, 1.3)[None])[0].exp()
    torch.testing.assert_close(*both, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("sigma", [0.005, 0.02])
def test_the_noise_is_found_below_a_blur(picture, sigma):
    found = spectrum(picture, gaussian_kernel(17, 2.0), sigma)
    assert math.sqrt(found.noise) == pytest.approx(sigma / math.sqrt(3), rel=0.2)  # the mean of three channels


@pytest.mark.parametrize("width", [0.9, 1.5, 2.4])
def test_the_width_of_a_gaussian_is_found(picture, width):
    _, mean, error = best_gaussian(spectrum(picture, gaussian_kernel(21, width)))
    assert mean == pytest.approx(width, abs=0.15)
    assert 0.01 < error < 0.3


@pytest.mark.parametrize(("length", "angle"), [(5.5, 20), (9, 100), (14, 163)])
def test_a_motion_is_found_and_is_likelier_than_a_gaussian(picture, length, angle):
    found = spectrum(picture, motion_kernel(17, length, angle))
    score, mean, direction, error = best_motion(found)
    assert mean == pytest.approx(length, abs=0.5)
    assert abs((direction - angle + 90) % 180 - 90) < 4
    assert error < 0.1 * length
    assert score > best_gaussian(found)[0] + 20


def test_a_gaussian_is_no_motion(picture):
    found = spectrum(picture, gaussian_kernel(21, 1.5))
    assert best_gaussian(found)[0] > best_motion(found)[0] + 10


def test_more_noise_is_less_sure(picture):
    quiet, loud = (best_gaussian(spectrum(picture, gaussian_kernel(21, 1.5), s))[2] for s in (0.005, 0.1))
    assert loud > 1.3 * quiet
