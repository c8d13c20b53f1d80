"""Every operator against the same checks: adjoint, linearity, dense solve, derivatives, sizes, per-sample settings."""

import copy

import pytest
import torch
from helpers import dense_solve, relative_error
from torch.autograd import gradcheck, gradgradcheck

from firm.operators import (
    Blur,
    Fourier,
    Identity,
    Mask,
    Subsample,
    data_consistency,
    dot_test,
    from_functions,
    gaussian_kernel,
    prox_test,
    random_mask,
)

SIZES = [(8, 8), (7, 9), (6, 11), (5, 5)]  # even, odd, mixed; square and not


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def subsample(factor):
    return lambda B, C, H, W: Subsample(factor, image_size=(H, W))


OPERATORS = {
    "identity": lambda B, C, H, W: Identity(),
    "mask": lambda B, C, H, W: Mask(random_mask((H, W), 0.3, generator())),
    "mask-weighted": lambda B, C, H, W: Mask(torch.rand(C, H, W, generator=generator()) * 2 - 0.5),
    "mask-per-sample": lambda B, C, H, W: Mask(random_mask((B, 1, H, W), 0.4, generator())),
    "subsample-2": subsample(2),
    "subsample-3": subsample(3),
    "subsample-4": subsample(4),
    "blur-gaussian": lambda B, C, H, W: Blur(gaussian_kernel(5, 1.0)),
    "blur-wraps": lambda B, C, H, W: Blur(gaussian_kernel(25, 3.0)),
    "blur-asymmetric-even": lambda B, C, H, W: Blur(torch.randn(4, 2, generator=generator())),
    "blur-per-sample": lambda B, C, H, W: Blur(torch.rand(B, 1, 3, 5, generator=generator())),
    "fourier-asymmetric": lambda B, C, H, W: Fourier(random_mask((H, W), 0.4, generator())),
    "fourier-weighted": lambda B, C, H, W: Fourier(torch.rand(H, W, generator=generator())),
    "fourier-per-sample": lambda B, C, H, W: Fourier(random_mask((B, 1, H, W), 0.4, generator())),
}
cases = pytest.mark.parametrize("make", OPERATORS.values(), ids=OPERATORS.keys())


def problem(make, size, batch=2, channels=2, dtype=torch.float64):
    shape = (batch, channels, *size)
    op = make(*shape).to(dtype)
    z = torch.randn(shape, dtype=dtype, generator=generator(1))
    y = op.A(torch.randn(shape, dtype=dtype, generator=generator(2)))
    return op, z, y + 0.1 * torch.randn(y.shape, dtype=y.dtype, generator=generator(3))


@cases
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_equals_a_dense_solve(make, size, dtype, tol):
    op, z, y = problem(make, size, dtype=dtype)
    for rho in (0.01, 2.0, torch.tensor([0.01, 0.3], dtype=dtype)):
        x = data_consistency(op, z, y, rho)
        assert x.dtype == dtype
        assert relative_error(x, dense_solve(copy.deepcopy(op), z, y, rho)) <= tol


@cases
def test_public_checks_pass(make):
    for size in SIZES:
        op, z, _ = problem(make, size)
        assert dot_test(op, tuple(z.shape), dtype=torch.float64) < 1e-12
        assert prox_test(op, tuple(z.shape), torch.tensor([0.01, 0.3]), dtype=torch.float64) < 1e-12
        assert dot_test(op.float(), tuple(z.shape)) < 1e-5


@cases
def test_first_and_second_derivatives(make):
    op, z, y = problem(make, (4, 5), channels=1)
    rho = torch.tensor([0.1, 0.5], dtype=torch.float64)
    inputs = [v.requires_grad_() for v in (z, y, rho)]

    def solve(z, y, rho):
        return data_consistency(op, z, y, rho)

    assert gradcheck(solve, inputs)
    assert gradgradcheck(solve, inputs)


@cases
def test_samples_do_not_depend_on_the_batch(make):
    op, z, y = problem(make, (6, 8), batch=3)
    rho = torch.tensor([0.01, 0.2, 1.0], dtype=torch.float64)
    order = torch.tensor([2, 0, 1])
    permuted = copy.deepcopy(op)
    for key, value in op.named_buffers():
        if value.ndim == 4:
            setattr(permuted, key, value[order])
    x = data_consistency(op, z, y, rho)
    torch.testing.assert_close(data_consistency(permuted, z[order], y[order], rho[order]), x[order])


@cases
def test_conjugate_gradients_agree_with_the_closed_form(make):
    op, z, y = problem(make, (6, 8))
    general = from_functions(op.A, op.A_adjoint)
    rho = torch.tensor([0.01, 0.3], dtype=torch.float64)
    assert relative_error(data_consistency(general, z, y, rho), data_consistency(op, z, y, rho)) < 1e-9


@cases
def test_computes_in_float32_inside_autocast(make):
    op, z, y = problem(make, (8, 8), dtype=torch.float32)
    expected = data_consistency(op, z.bfloat16().float(), y, 0.01)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = data_consistency(op, z.bfloat16(), y, 0.01)
    assert x.dtype == torch.float32
    torch.testing.assert_close(x, expected)


def test_subsample_on_multiples_needs_no_image_size():
    op = Subsample(2)
    assert op.A(torch.zeros(1, 3, 8, 6)).shape == (1, 3, 4, 3)
    assert dot_test(op, (1, 3, 8, 6)) < 1e-5


def test_subsample_keeps_the_top_left_pixel_of_each_cell():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert Subsample(2).A(x).flatten().tolist() == [0, 2, 8, 10]


def test_blur_is_a_circular_convolution_with_its_center_at_half_the_kernel():
    kernel = torch.randn(3, 4, generator=generator())
    impulse = torch.zeros(1, 1, 7, 8)
    impulse[0, 0, 3, 4] = 1
    blurred = Blur(kernel).A(impulse)[0, 0]
    torch.testing.assert_close(blurred[2:5, 2:6], kernel)
    assert blurred.abs().sum() == pytest.approx(float(kernel.abs().sum()), rel=1e-5)


def test_valid_blur_is_the_inside_of_the_circular_one():
    """Against torch's convolution."""
    x = torch.randn(2, 3, 6, 7, generator=generator())
    for h, w in ((3, 3), (4, 5), (1, 2), (6, 7)):
        kernel = torch.randn(h, w, generator=generator(1))
        direct = torch.nn.functional.conv2d(x.flatten(0, 1)[:, None], kernel.flip(0, 1)[None, None])
        found = Blur(kernel, boundary="valid").A(x)
        torch.testing.assert_close(found, direct.reshape(2, 3, 6 - h + 1, 7 - w + 1), rtol=1e-5, atol=1e-5)


def test_gaussian_blur_keeps_a_constant_image():
    torch.testing.assert_close(Blur(gaussian_kernel(61, 1.0)).A(torch.ones(1, 3, 16, 16)), torch.ones(1, 3, 16, 16))


def test_fourier_of_a_symmetric_mask_is_the_papers_update():
    mask = torch.zeros(8, 8)
    mask[:, [0, 1, 7, 4]] = 1
    op, rho = Fourier(mask).double(), 0.01
    z = torch.randn(1, 3, 8, 8, dtype=torch.float64, generator=generator())
    y = op.A(torch.randn(1, 3, 8, 8, dtype=torch.float64, generator=generator(1)))
    z_hat = torch.fft.fft2(z, norm="ortho")
    paper = torch.fft.ifft2(torch.where(mask.bool(), (y + rho * z_hat) / (1 + rho), z_hat), norm="ortho").real
    torch.testing.assert_close(data_consistency(op, z, y, rho), paper)
