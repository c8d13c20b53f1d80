"""The noise estimate against noise that was added."""

import pytest
import torch
from torch.nn import functional as F

from firm.restoration import estimate_noise
from firm.restoration.estimates import smoothest_noise


def smooth(seed=0, size=128):
    small = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return F.interpolate(small, size=(size, size), mode="bicubic", align_corners=False)


@pytest.mark.parametrize("sigma", [0.01, 0.05, 0.2, 0.5])
def test_white_noise_is_found(sigma):
    noise = torch.randn(1, 3, 128, 128, generator=torch.Generator().manual_seed(1))
    assert estimate_noise(smooth() + sigma * noise) == pytest.approx(sigma, rel=0.06)


@pytest.mark.parametrize(("keep", "tolerance"), [(0.7, 0.08), (0.3, 0.4)])
def test_missing_pixels_are_left_out(keep, tolerance):
    generator = torch.Generator().manual_seed(2)
    seen = (torch.rand(128, 128, generator=generator) < keep).float()
    y = smooth() + 0.1 * torch.randn(1, 3, 128, 128, generator=generator)
    assert estimate_noise(y * seen, seen) == pytest.approx(0.1, rel=tolerance)
    assert estimate_noise(y * seen) > 0.125  # holes read as noise


def test_a_clean_picture_has_the_noise_of_rounding_and_too_few_pixels_have_none():
    assert estimate_noise(torch.zeros(1, 3, 64, 64)) == smoothest_noise(torch.zeros(1, 4, 64, 64)) == 0.002
    seen = torch.zeros(32, 32)
    seen[::2, ::2] = 1
    with pytest.raises(ValueError, match="too few neighboring pixels"):
        estimate_noise(smooth(size=32), seen)


@pytest.mark.parametrize("sigma", [0.02, 0.1])
def test_where_a_picture_is_smooth_texture_is_no_noise(sigma):
    """A texture over nine tenths of a smooth picture. The smoothest twentieth is half of what has only noise."""
    g = torch.Generator().manual_seed(2)
    texture = 0.8 * (torch.rand(1, 4, 160, 160, generator=g) - 0.5)
    texture[..., :16] = 0
    y = 0.5 * smooth(size=160)[:, :1] + texture + sigma * torch.randn(1, 4, 160, 160, generator=g)
    assert 0.9 * sigma < smoothest_noise(y) < 1.4 * sigma
    assert estimate_noise(y) > 2 * sigma


def test_without_texture_the_two_agree():
    """Parts that are black or white do not tell, and a small picture has too few blocks."""
    noise = 0.1 * torch.randn(1, 4, 200, 200, generator=torch.Generator().manual_seed(1))
    assert smoothest_noise(noise) == pytest.approx(0.1, rel=0.06)
    noise[..., :100, :] = (noise[..., :100, :] + 1.5).clamp(-1, 1)  # overexposed
    assert smoothest_noise(noise) == pytest.approx(0.1, rel=0.15)
    assert smoothest_noise(noise[..., 100:124, :24]) == estimate_noise(noise[..., 100:124, :24])
