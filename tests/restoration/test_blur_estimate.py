"""The width of a blur, from the picture alone."""

import pytest
import torch
from helpers import says
from torch.nn import functional as F

import firm
from firm.operators import gaussian_kernel
from firm.restoration import Problem, ProblemError, estimate_blur
from firm.restoration.output import write_picture
from restoration_helpers import rows


def blurred(width, noise=0.01):
    """The portrait, blurred, with noise, rounded to 8 bits."""
    x, reach = firm.data.portrait(), int(4 * width + 1)
    kernel = gaussian_kernel(2 * reach + 1, width).float().expand(3, 1, -1, -1)
    y = F.conv2d(F.pad(x, (reach,) * 4, mode="reflect"), kernel, groups=3)
    y = y + noise * torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    return ((y + 1) * 127.5).round().clamp(0, 255) / 127.5 - 1


def photograph(width, noise, side=256, slope=2.4, seed=0):
    """A random picture with the spectrum of photographs, blurred."""
    generator = torch.Generator().manual_seed(seed)
    f = torch.hypot(torch.fft.fftfreq(side)[:, None], torch.fft.rfftfreq(side)[None]).clamp(min=1 / side)
    spectrum = torch.fft.rfft2(torch.randn(side, side, generator=generator)) * f ** (-slope / 2)
    x = torch.fft.irfft2(spectrum, s=(side, side))
    y = torch.fft.irfft2(spectrum * torch.exp(-2 * (torch.pi * f * width) ** 2), s=(side, side)) * (0.4 / x.std())
    return y.expand(1, 3, -1, -1) + noise * torch.randn(1, 3, side, side, generator=generator)


@pytest.mark.parametrize("width", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("noise", [0.005, 0.05])
def test_the_width_is_found(width, noise):
    for slope in (2.2, 2.6):
        found = estimate_blur(photograph(width, noise, slope=slope))
        assert found.width == pytest.approx(width, abs=2.5 * found.error)
        assert found.width == pytest.approx(width, rel=0.15)
        assert found.error < 0.2 * width


@pytest.mark.parametrize("width", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_real_picture_has_a_blur_of_its_own(width, noise):
    """That of the portrait is about 0.6 pixels: squares add."""
    assert estimate_blur(blurred(width, noise)).width == pytest.approx((width**2 + 0.6**2) ** 0.5, rel=0.1)


def test_more_noise_is_less_sure_and_that_of_a_gray_picture_does_not_average_out():
    assert estimate_blur(blurred(2.0, 0.05)).error > 1.3 * estimate_blur(blurred(2.0, 0.0)).error
    gray = blurred(1.5, 0.05)[:, :1].expand(-1, 3, -1, -1)
    assert estimate_blur(gray).width == pytest.approx(1.5, rel=0.15)


def test_what_cannot_be_told_is_said():
    noise = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    for y, message in (
        (torch.rand(1, 3, 47, 200), "too small"),
        (torch.zeros(1, 3, 64, 64), "too little detail"),
        (0.1 * noise, "too little detail"),
        (firm.data.portrait(), "looks sharp"),
        (blurred(8.0, 0.0), "cannot be told"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate_blur(y)


def test_the_middle_of_a_large_picture_is_used():
    y = photograph(1.5, 0.02, side=1100)
    inside = estimate_blur(y[..., 38:-38, 38:-38])
    y[..., :38, :] = torch.rand(3, 38, 1100)
    assert estimate_blur(y) == inside


def test_deblurring_without_the_width(restore, folder, tmp_path):
    write_picture(tmp_path / "b.png", blurred(1.5)[0])
    output = restore(tmp_path / "b.png", "--task", "deblurring")
    (row,) = rows(tmp_path / "out")
    assert row["blur"] == pytest.approx(1.6, rel=0.1)
    assert says(output, f"estimated blur {row['blur']:.2f} ± {row['blur_error']:.2f} pixels")
    assert Problem.from_file(tmp_path / "b.png", "deblurring", blur=2.0).settings["blur"] == 2.0
    asked = r"000\.png: deblurring needs .* give --blur, or its --kernel; a picture of fewer than 48"
    with pytest.raises(ProblemError, match=asked):
        Problem.from_file(folder / "000.png", "deblurring")
