"""The image that solvers start from."""

import pytest
import torch

from firm.operators import Blur, Downsample, Fourier, Identity, Mask, Subsample, first_guess, gaussian_kernel


def smooth(side=32, other=None):
    rows = torch.linspace(0, 3, side, dtype=torch.float64)[:, None]
    columns = torch.linspace(0, 2, other or side, dtype=torch.float64)
    return torch.stack([torch.sin(rows) * torch.cos(columns), torch.cos(rows + columns)])[None]


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("shape", [(32, 32), (32, 48)])
def test_a_smaller_image_is_enlarged(factor, shape):
    x, op = smooth(*shape), Subsample(factor)
    y = op.A(x)
    guess, filled = first_guess(op, y), op.A_adjoint(y)
    assert guess.shape == x.shape
    torch.testing.assert_close(op.A(guess), y, rtol=0, atol=1e-12)  # the measured pixels are where they were
    error, plain = ((g - x).square().mean().sqrt() for g in (guess, filled))
    assert error < 0.1 * plain
    inside = (guess - x)[..., factor : -2 * factor, factor : -2 * factor]
    assert inside.abs().max() < 0.01 * (factor - 1)


def test_every_image_and_channel_is_enlarged_alone():
    x, op = torch.cat([smooth(), smooth().flip(3)]), Subsample(2)
    together = first_guess(op, op.A(x))
    for i in range(2):
        for c in range(2):
            alone = first_guess(op, op.A(x[i : i + 1, c : c + 1]))
            torch.testing.assert_close(together[i : i + 1, c : c + 1], alone)


def test_other_measurements_begin_with_the_adjoint():
    x = smooth(8)
    mask = (torch.rand(8, 8) < 0.5).double()
    blur = Blur(gaussian_kernel(5, 1.0).double())
    for op in (Identity(), Mask(mask), blur, Fourier(mask), Subsample(8)):  # the last leaves a single pixel
        y = op.A(x)
        assert torch.equal(first_guess(op, y), op.A_adjoint(y))


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("filter", ["bicubic", "bilinear", "box", "kernel", "one a sample"])
def test_a_filter_does_not_shift_the_guess(factor, filter):
    """Against a slow cosine: pixels of a named filter lie (s - 1) / 2 behind those of a stride."""
    side, period = 24 * factor, 12 * factor

    def wave(shift):
        rows, columns = (2 * torch.pi * (torch.arange(side).double() - shift) / period for _ in range(2))
        return (rows.cos()[:, None] + (columns + 0.5).cos())[None, None].repeat(2, 1, 1, 1) / 2

    kernels = torch.zeros(2, 1, 5, 5, dtype=torch.float64)
    kernels[:, :, 2, 2] = 1
    custom = {"kernel": gaussian_kernel(5, 0.8).double(), "one a sample": kernels.roll(1, -1)}
    op, inside = Downsample(factor, custom.get(filter, filter)).double(), slice(2 * factor, -3 * factor)
    guess = first_guess(op, op.A(wave(0)))[..., inside, inside]
    errors = [float((guess - wave(s)[..., inside, inside]).square().mean().sqrt()) for s in (0, 0.5, -0.5)]
    if filter == "one a sample":  # which moves columns only
        assert errors[0] < 0.02
        return
    assert errors[0] < 0.4 * min(errors[1:]), errors


class Cut:
    """The image without its last column and row: smaller, but by no whole factor."""

    def A(self, x):
        return x[..., :-1, :-1]

    def A_adjoint(self, y):
        return torch.nn.functional.pad(y, (0, 1, 0, 1))


@pytest.mark.parametrize("side", [8, 9])
def test_sizes_that_are_no_multiple_are_not_enlarged(side):
    y = Cut().A(smooth(side))
    assert torch.equal(first_guess(Cut(), y), Cut().A_adjoint(y))
