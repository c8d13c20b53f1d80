"""The check of A and its adjoint sees what is wrong at every size and seed, and nothing in what is right."""

import pytest
import torch

from firm.operators import (
    Blur,
    Compose,
    Downsample,
    Fourier,
    Identity,
    Mask,
    Stack,
    Subsample,
    as_real,
    dot_test,
    from_functions,
    gaussian_kernel,
    random_mask,
)
from firm.operators.compose import Repeated, group

SIZES = [16, 64, 256, 512]


def seeds(size):
    """Many where they are cheap."""
    return range(max(1, 40 * 16 // size))


def half(x):
    return 0.5 * x


def skewed(x):
    return 0.7 * x + 0.3 * x.roll(1, -1)


def unskewed(y):
    return 0.7 * y + 0.3 * y.roll(-1, -1)


def one_wrong_of_three(y):
    return torch.cat([half(y[:2]), y[2:]])


def adds_one_pixel(x):
    out = half(x)
    out[:, :, 0, 0] += 0.1
    return out


WRONG_ADJOINTS = {
    "factor 2": (half, lambda y: y, 1),
    "factor 1.01": (half, lambda y: 0.505 * y, 1),
    "sign": (half, lambda y: -half(y), 1),
    "kernel not mirrored": (skewed, skewed, 1),
    "shift": (half, lambda y: half(y).roll(1, -1), 1),
    "complex conjugate": (lambda x: 0.5j * x, lambda y: (0.5j * y).real, 1),
    "one sample of three": (half, one_wrong_of_three, 3),
    "where nothing is measured": (
        lambda x: torch.cat([half(x), 0 * x], 1),
        lambda y: half(y[:, :1]) + 0.1 * y[:, 1:],
        1,
    ),
}
NOT_LINEAR = {
    "offset": lambda x: half(x) + 0.5,
    "offset of one pixel": adds_one_pixel,
    "small offset": lambda x: half(x) + 1e-3,
    "clipped": lambda x: half(x).clamp(-1, 1),
    "squared": lambda x: half(x).square(),
    "absolute": lambda x: half(x).abs(),
    "rounded": lambda x: (20 * x).round() / 40,
    "noise": lambda x: half(x) + 0.01 * torch.randn_like(x),
    "NaN": lambda x: half(x) * float("nan"),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wrong", WRONG_ADJOINTS)
def test_a_wrong_adjoint_is_seen_at_every_size(wrong, size):
    A, A_adjoint, batch = WRONG_ADJOINTS[wrong]
    op = from_functions(A, A_adjoint)
    for seed in seeds(size):
        with pytest.raises(ValueError, match="A_adjoint is not the adjoint of A"):
            dot_test(op, (batch, 1, size, size), seed=seed)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wrong", NOT_LINEAR)
def test_what_is_not_linear_is_seen_at_every_size(wrong, size):
    op = from_functions(NOT_LINEAR[wrong], half)
    for seed in seeds(size)[:10]:
        with pytest.raises(ValueError, match="A is not linear"):
            dot_test(op, (1, 1, size, size), seed=seed)


def right(size):
    """Every operator of the package, with its images' channels, batch and type."""
    mask = random_mask((size, size), 0.08, torch.Generator().manual_seed(0))
    asymmetric = torch.rand(5, 5, generator=torch.Generator().manual_seed(1))
    masks = torch.stack([mask, 1 - mask])[:, None]
    x = torch.zeros(1, 1, size, size)
    grouped, _ = group([(Mask(mask), x), (Subsample(2), x[..., ::2, ::2])])
    return {
        "identity": (Identity(), 1, 1),
        "mask": (Mask(mask), 1, 1),
        "one pixel": (Mask(torch.eye(size) * (torch.arange(size) == 3)), 1, 1),
        "weights": (Mask(1e-3 + 50 * mask), 1, 1),
        "masks": (Mask(masks), 1, 2),
        "subsample": (Subsample(2), 1, 1),
        "downsample": (Downsample(4), 1, 1),
        "gaussian": (Blur(gaussian_kernel(15, 3.0)), 1, 1),
        "asymmetric": (Blur(asymmetric), 1, 1),
        "fourier": (Fourier(mask), 1, 1),
        "complex fourier": (as_real(Fourier(mask, complex_images=True)), 2, 1),
        "sums": (from_functions(lambda x: x.cumsum(-1), image_shape=(1, size, size)), 1, 1),
        "differences": (from_functions(lambda x: x - x.roll(1, -1), lambda y: y - y.roll(-1, -1)), 1, 1),
        "tiny": (from_functions(lambda x: 1e-12 * x, lambda y: 1e-12 * y), 1, 1),
        "huge": (from_functions(lambda x: 1e12 * x, lambda y: 1e12 * y), 1, 1),
        "one number": (from_functions(lambda x: x.flatten(1).sum(1), image_shape=(1, size, size)), 1, 1),
        "joined": (Stack(Mask(mask), Subsample(2), image_shape=(1, size, size)), 1, 1),
        "one after the other": (Compose(Subsample(2), Blur(asymmetric)), 1, 1),
        "repeated": (Repeated(Mask(masks), 2), 1, 4),
        "grouped": (grouped, 1, 2),
    }


@pytest.mark.parametrize("size", SIZES)
def test_right_operators_pass_at_every_size(size):
    for name, (op, channels, batch) in right(size).items():
        for seed in seeds(size)[:5]:
            assert dot_test(op, (batch, channels, size, size), seed=seed) < 1e-4, name


def test_it_costs_a_few_applications():
    calls = []
    op = from_functions(lambda x: calls.append("A") or x, lambda y: calls.append("A'") or y)
    dot_test(op, (1, 1, 8, 8))
    assert (calls.count("A"), calls.count("A'")) == (4, 2)


def test_measurements_that_are_not_one_an_image():
    op = from_functions(lambda x: x.sum(0), lambda y: y)
    with pytest.raises(ValueError, match=r"maps \(2, 1, 8, 8\) to \(1, 8, 8\): not one measurement per image"):
        dot_test(op, (2, 1, 8, 8))
