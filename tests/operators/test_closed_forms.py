"""Every operator against the same checks: adjoint, dense solve, derivatives, sizes, per-sample settings, graphs."""

import copy
from functools import partial

import pytest
import torch
from helpers import dense_solve, randn, relative_error
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from firm.operators import (
    Blur,
    Compose,
    Downsample,
    Fourier,
    Identity,
    Mask,
    MultiCoil,
    Stack,
    Subsample,
    as_real,
    data_consistency,
    dot_test,
    from_functions,
    gaussian_kernel,
    prox_test,
    random_mask,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


SIZES = [(4, 5), (8, 8), (7, 9), (6, 11), (5, 5)]  # even, odd, mixed; square and not
SIMPLE = {
    "identity": lambda B, C, H, W: Identity(),
    "mask": lambda B, C, H, W: Mask(random_mask((H, W), 0.3, generator())),
    "mask-weighted": lambda B, C, H, W: Mask(torch.rand(C, H, W, generator=generator()) * 2 - 0.5),
    "mask-per-sample": lambda B, C, H, W: Mask(random_mask((B, 1, H, W), 0.4, generator())),
    "subsample-2": lambda B, C, H, W: Subsample(2, image_size=(H, W)),
    "subsample-3": lambda B, C, H, W: Subsample(3, image_size=(H, W)),
    "subsample-4": lambda B, C, H, W: Subsample(4, image_size=(H, W)),
    "blur-gaussian": lambda B, C, H, W: Blur(gaussian_kernel(5, 1.0)),
    "blur-wraps": lambda B, C, H, W: Blur(gaussian_kernel(25, 3.0)),
    "blur-asymmetric-even": lambda B, C, H, W: Blur(torch.randn(4, 2, generator=generator())),
    "blur-per-sample": lambda B, C, H, W: Blur(torch.rand(B, 1, 3, 5, generator=generator())),
    "fourier-asymmetric": lambda B, C, H, W: Fourier(random_mask((H, W), 0.4, generator())),
    "fourier-weighted": lambda B, C, H, W: Fourier(torch.rand(H, W, generator=generator())),
    "fourier-per-sample": lambda B, C, H, W: Fourier(random_mask((B, 1, H, W), 0.4, generator())),
}


def coils(dtype=torch.complex128):
    maps = torch.complex(randn(3, 4, 5), randn(3, 4, 5, seed=1)).to(dtype)
    mask = random_mask((4, 5), 0.6, torch.Generator().manual_seed(0))

    def A(x):  # (B, 1, H, W) -> (B, coils, H, W)
        return mask * torch.fft.fft2(maps.to(x.dtype) * x, norm="ortho")

    def A_adjoint(y):
        return (maps.to(y.dtype).conj() * torch.fft.ifft2(mask * y, norm="ortho")).sum(1, keepdim=True)

    return from_functions(A, A_adjoint)


def maps(*size):
    return torch.complex(randn(*size), randn(*size, seed=1))


def unit(*size):
    return torch.polar(torch.ones(size, dtype=torch.float64), randn(*size))


CLOSED = {
    "downsample-2": (lambda: Downsample(2), (1, 8, 6)),
    "downsample-3": (lambda: Downsample(3), (2, 9, 3)),
    "downsample-4-box": (lambda: Downsample(4, "box"), (1, 4, 8)),
    "downsample-2-bilinear": (lambda: Downsample(2, "bilinear"), (1, 2, 6)),
    "downsample-asymmetric": (lambda: Downsample(2, randn(4, 3)), (2, 6, 4)),
    "downsample-per-sample": (lambda: Downsample(3, randn(2, 1, 2, 5)), (1, 3, 6)),
    "compose-blurs-even": (lambda: Compose(Blur(randn(4, 2)), Blur(randn(2, 3, seed=1))), (1, 7, 5)),
    "compose-three": (lambda: Compose(Blur(randn(3, 3)), Identity(), Blur(randn(2, 1, 3, 2, seed=1))), (1, 5, 6)),
    "compose-downsample": (lambda: Compose(Subsample(2), Blur(randn(3, 4)), Blur(randn(2, 2))), (1, 6, 4)),
    "compose-identity": (lambda: Compose(Identity(), Mask(randn(5, 5)), Identity()), (1, 5, 5)),
    "stack-masks": (
        lambda: Stack(Mask(randn(2, 5, 4)), Identity(), Mask(randn(5, 4)), image_shape=(2, 5, 4)),
        (2, 5, 4),
    ),
    "stack-blurs": (lambda: Stack(Blur(randn(3, 2)), Identity(), Blur(randn(4, 4)), image_shape=(1, 5, 6)), (1, 5, 6)),
    "as-real-multicoil-full": (lambda: as_real(MultiCoil(torch.full((5, 4), 0.5), maps(3, 5, 4))), (2, 5, 4)),
    "as-real-multicoil-phase": (lambda: as_real(MultiCoil(randn(5, 4), unit(2, 1, 5, 4))), (2, 5, 4)),
    "as-real": (lambda: as_real(Fourier(randn(5, 4), complex_images=True)), (4, 5, 4)),
}
ITERATED = {
    "blur-valid": (lambda: Blur(randn(3, 4), boundary="valid"), (2, 6, 7)),
    "blur-valid-per-sample": (lambda: Blur(randn(2, 1, 2, 3), boundary="valid"), (1, 5, 4)),
    "compose-mask-blur": (lambda: Compose(Mask(randn(5, 6)), Blur(randn(3, 2))), (1, 5, 6)),
    "compose-valid-first": (lambda: Compose(Blur(randn(2, 2)), Blur(randn(3, 2), boundary="valid")), (1, 5, 4)),
    "compose-valid-last": (lambda: Compose(Blur(randn(3, 2), boundary="valid"), Blur(randn(2, 2))), (1, 5, 4)),
    "compose-odd-subsample": (lambda: Compose(Subsample(2, (5, 5)), Blur(gaussian_kernel(3, 1.0))), (1, 5, 5)),
    "stack-mixed": (
        lambda: Stack(
            Subsample(2, (5, 5)), Fourier(random_mask((5, 5), 0.3)), Mask(randn(5, 5)), image_shape=(1, 5, 5)
        ),
        (1, 5, 5),
    ),
    "stack-valid": (lambda: Stack(Blur(randn(2, 2), boundary="valid"), Identity(), image_shape=(1, 4, 5)), (1, 4, 5)),
    "by-autograd": (lambda: from_functions(lambda x: x.cumsum(-1)[..., 1:] / 4, image_shape=(1, 4, 4)), (1, 4, 4)),
    "complex-by-autograd": (
        lambda: from_functions(lambda x: torch.fft.fft2(x.cumsum(-1))[..., :2] * (1 + 2j) / 8, image_shape=(1, 4, 4)),
        (1, 4, 4),
    ),
    "as-real-multicoil": (lambda: as_real(MultiCoil(randn(4, 5), maps(3, 4, 5))), (2, 4, 5)),
    "as-real-multicoil-lines": (lambda: as_real(MultiCoil(randn(2, 1, 1, 5), maps(2, 2, 4, 5))), (2, 4, 5)),
    "as-real-multicoil-rows": (lambda: as_real(MultiCoil(randn(4, 1), maps(2, 4, 3))), (2, 4, 3)),
    "as-real-coils": (lambda: as_real(coils()), (2, 4, 5)),
}
SMALL = {key: (partial(make, 2, 1, 4, 5), (1, 4, 5)) for key, make in SIMPLE.items()}
SIZED = {f"{key}-{H}x{W}": (partial(SIMPLE[key], 2, 2, H, W), (2, H, W)) for key in SIMPLE for H, W in SIZES[1:]}
CLOSED |= SMALL
ALL = CLOSED | ITERATED
EVERY = ALL | SIZED
cases = pytest.mark.parametrize(("make", "shape"), ALL.values(), ids=ALL.keys())
every_size = pytest.mark.parametrize(("make", "shape"), EVERY.values(), ids=EVERY.keys())
RHO = torch.tensor([0.05, 0.7], dtype=torch.float64)


def problem(make, shape, dtype=torch.float64, batch=2):
    torch.manual_seed(0)
    op = make().to(dtype)
    z = randn(batch, *shape, seed=2, dtype=dtype)
    y = op.A(randn(batch, *shape, seed=3, dtype=dtype))
    return op, z, y + 0.1 * torch.randn(y.shape, dtype=y.dtype, generator=generator(4))


@pytest.mark.parametrize("key", ALL)
def test_has_a_closed_form_where_one_survives(key):
    assert ALL[key][0]().closed_form == (key in CLOSED)


@every_size
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 2e-5), (torch.float64, 1e-11)])
def test_equals_a_dense_solve(make, shape, dtype, tol):
    op, z, y = problem(make, shape, dtype)
    for rho in (0.05, RHO):
        x = data_consistency(op, z, y, rho)
        assert x.dtype == dtype
        error = relative_error(x, dense_solve(copy.deepcopy(op), z, y, rho))
        assert error < (tol if op.closed_form else 10 * tol)  # the residual's 1e-6 times the condition number


@every_size
def test_public_checks_pass(make, shape):
    op, z, _ = problem(make, shape)
    assert dot_test(op, tuple(z.shape), dtype=torch.float64) < 1e-12
    assert prox_test(op, tuple(z.shape), RHO, dtype=torch.float64) < 1e-11


@cases
def test_first_and_second_derivatives(make, shape):
    op, z, y = problem(make, shape)
    op.cg_tol = 1e-15  # differences of solutions over 1e-6 need more than the 1e-12 of the default
    inputs = [v.requires_grad_() for v in (z, y, RHO.clone())]

    def solve(z, y, rho):
        return data_consistency(op, z, y, rho)

    assert gradcheck(solve, inputs, fast_mode=True)
    assert gradgradcheck(solve, inputs, fast_mode=True)


class NothingFromOrToTheCpu(TorchDispatchMode):
    """Refuses what a CUDA graph cannot hold: values read back, and tensors made of Python lists."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value is read"
        assert func is not torch.ops.aten.lift_fresh.default or args[0].ndim == 0, f"a constant is copied: {args[0]}"
        return func(*args, **(kwargs or {}))


@cases
@pytest.mark.parametrize("rho", [0.05, RHO])
def test_fits_into_a_cuda_graph(make, shape, rho):
    """Forward and backward; conjugate gradients with a fixed number of iterations."""
    op, z, y = problem(make, shape)
    op.cg_tol, op.cg_iterations = 0, 2 * shape[1] * shape[2]  # past convergence
    z.requires_grad_()
    y.requires_grad_()
    with NothingFromOrToTheCpu():
        x = data_consistency(op, z, y, rho)
        grad_z, grad_y = torch.autograd.grad(x.square().sum(), (z, y))
    assert relative_error(x.detach(), dense_solve(op, z.detach(), y.detach(), rho)) < 1e-11
    del op.cg_tol, op.cg_iterations
    expected = torch.autograd.grad(data_consistency(op, z, y, rho).square().sum(), (z, y))
    torch.testing.assert_close((grad_z, grad_y), expected)


@pytest.mark.cuda
@pytest.mark.parametrize("key", [key for key in ALL if key != "as-real-coils"])  # whose maps stay on the CPU
@pytest.mark.parametrize("per_sample", [False, True])
def test_is_captured_by_a_cuda_graph(key, per_sample):
    make, shape = ALL[key]
    op, z, y = problem(make, shape)
    op, z, y = op.cuda(), z.cuda().requires_grad_(), y.cuda()
    op.cg_tol, op.cg_iterations = 0, 100
    rho = RHO.cuda() if per_sample else 0.05

    def step():
        x = data_consistency(op, z, y, rho)
        return x, torch.autograd.grad(x.square().sum(), z)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    with torch.no_grad():
        z.copy_(z.flip(-1) + 1)
    graph.replay()
    torch.testing.assert_close(outputs, step())
    expected = dense_solve(op.cpu(), z.detach().cpu(), y.cpu(), rho.cpu() if per_sample else rho)
    assert relative_error(outputs[0].detach().cpu(), expected) < 1e-9


@pytest.mark.parametrize("make", SIMPLE.values(), ids=SIMPLE.keys())
def test_samples_do_not_depend_on_the_batch(make):
    op, z, y = problem(partial(make, 3, 2, 6, 8), (2, 6, 8), batch=3)
    rho = torch.tensor([0.01, 0.2, 1.0], dtype=torch.float64)
    order = torch.tensor([2, 0, 1])
    permuted = copy.deepcopy(op)
    for key, value in op.named_buffers():
        if value.ndim == 4:
            setattr(permuted, key, value[order])
    x = data_consistency(op, z, y, rho)
    torch.testing.assert_close(data_consistency(permuted, z[order], y[order], rho[order]), x[order])


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
