"""The data-consistency step for every noise model, against dense solves and brute-force minimizers in float64."""

import pytest
import torch
from helpers import dense, rand, randn
from torch.autograd import functional, gradcheck

import firm
from firm.noise import Gaussian, Poisson, PoissonGaussian, base
from firm.noise.grouped import grouped
from firm.operators import Blur, Downsample, Fourier, Identity, Mask, Subsample, gaussian_kernel
from firm.operators.base import diagonal
from firm.operators.compose import Compose, Repeated, group
from firm.tasks.deblurring import valid_blur

DIAGONAL = {
    "identity": Identity(),
    "mask": Mask(torch.tensor([[1.0, 0.0, 0.5, 1.0, 1.0, 2.0]])),
    "masks": Mask((rand(2, 1, 6, 6) < 0.6).float()),
    "subsample": Subsample(2),
    "box": Downsample(2, "box"),
    "composed": Compose(Identity(), Subsample(3)),
    "repeated": Repeated(Mask((rand(1, 1, 6, 6) < 0.6).float()), 1),
}
OTHERS = {
    "blur": Blur(gaussian_kernel(5, 0.8).double()),
    "valid": Blur(gaussian_kernel(3, 0.6).double(), boundary="valid"),
    "bicubic": Downsample(2, "bicubic"),
}
COUNTED = {"poisson": Poisson(2 / 60), "camera": PoissonGaussian(0.03, 0.04)}


def problem(op, noise, channels=1):
    op, x = op.double(), 0.6 * (rand(2, channels, 6, 6).double() * 2 - 1)
    noise = noise.on(op, op.A(x), x)
    z = (x + 0.2 * randn(*x.shape)).clamp(-1, 1)
    return op, z, noise.draw(op.A(x), torch.Generator().manual_seed(1)), noise


def objective(op, noise, x, z, y, rho):
    likelihood = noise.level(y).square() * noise.neg_log_likelihood(op.A(x), y)
    return likelihood + rho / 2 * (x - z).square().flatten(1).sum(1)


def least(op, noise, z, y, rho):
    """The minimizer by damped Newton steps with the Hessian of autograd, sample by sample; it knows nothing of A A'."""
    x = z.clone()
    for _ in range(15):
        for i in range(len(x)):

            def f(flat, i=i):
                image = x.clone()
                image[i] = flat.reshape(x.shape[1:])
                return objective(op, noise, image, z, y, rho)[i]

            flat = x[i].flatten()
            gradient, hessian = functional.jacobian(f, flat), functional.hessian(f, flat)
            values, vectors = torch.linalg.eigh(hessian)
            step = vectors @ ((vectors.T @ gradient) / values.abs().clamp(min=rho))
            t, start = 1.0, f(flat)
            while t > 1e-12 and not f(flat - t * step) <= start:
                t /= 2
            x[i] = (flat - t * step).reshape(x.shape[1:])
    return x


@pytest.mark.parametrize("name", {**DIAGONAL, **OTHERS})
def test_operators_know_when_their_rows_are_orthogonal(name):
    op = {**DIAGONAL, **OTHERS}[name].double()
    matrix = dense(op, (1, 6, 6), 2)
    gram = matrix @ matrix.mT
    y = op.A(torch.zeros(2, 1, 6, 6, dtype=torch.float64))
    d = diagonal(op, y)
    off = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
    assert (d is not None) == (float(off.abs().max()) < 1e-9) == (name in DIAGONAL)
    if d is not None:
        torch.testing.assert_close(d.expand_as(y).flatten(1), gram.diagonal(dim1=1, dim2=2), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rho", [0.01, 0.3])
@pytest.mark.parametrize("kind", COUNTED)
@pytest.mark.parametrize("name", DIAGONAL)
def test_counts_are_solved_exactly_where_rows_are_orthogonal(name, kind, rho):
    op, z, y, noise = problem(DIAGONAL[name], COUNTED[kind])
    x = firm.data_consistency(op, z, y, rho, noise)
    torch.testing.assert_close(x, least(op, noise, z, y, rho), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", COUNTED)
@pytest.mark.parametrize("name", OTHERS)
def test_counts_are_solved_by_splitting_elsewhere(name, kind, monkeypatch):
    op, z, y, noise = problem(OTHERS[name], COUNTED[kind])
    expected, rho = least(op, noise, z, y, 0.05), 0.05
    assert float((firm.data_consistency(op, z, y, rho, noise) - expected).abs().max()) < 4e-3
    assert float((firm.data_consistency(op, z, y, rho) - expected).abs().max()) > 0.012  # what ignores the photons
    monkeypatch.setattr(base, "SPLITS", 80)
    torch.testing.assert_close(firm.data_consistency(op, z, y, rho, noise), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", {**DIAGONAL, **OTHERS, "fourier": None})
def test_maps_of_standard_deviations_against_a_dense_solve(name):
    op = Fourier((rand(6, 6) < 0.6).float()) if name == "fourier" else {**DIAGONAL, **OTHERS}[name]
    op = op._apply(lambda v: v.double())
    like = op.A(torch.zeros(2, 1, 6, 6, dtype=torch.float64))
    sigma = 0.1 + rand(*like.shape).double()
    noise, z, y = Gaussian(sigma), randn(2, 1, 6, 6), like + randn(*like.shape, seed=3)
    rho = torch.tensor([0.1, 0.4], dtype=torch.float64)
    matrix = dense(op, (1, 6, 6), 2)
    flat = torch.cat([y.real.flatten(1), y.imag.flatten(1)], 1) if y.is_complex() else y.flatten(1)
    level = sigma.square().flatten(1).mean(1).sqrt()
    w = (level[:, None] / sigma.flatten(1)).square()
    w = torch.cat([w, w], 1) if y.is_complex() else w
    left = matrix.mT @ (w[:, :, None] * matrix) + rho[:, None, None] * torch.eye(36, dtype=torch.float64)
    right = (matrix.mT @ (w * flat)[:, :, None])[:, :, 0] + rho[:, None] * z.flatten(1)
    expected = torch.linalg.solve(left, right).reshape(z.shape)
    torch.testing.assert_close(firm.data_consistency(op, z, y, rho, noise), expected, rtol=1e-6, atol=1e-6)


def test_a_spectrum_against_a_dense_solve():
    spectrum = (1 + 2 * rand(6, 6)).double()
    spectrum = (spectrum + spectrum.flip(-2, -1).roll((1, 1), (-2, -1))) / 2
    op, z, y = OTHERS["blur"].double(), randn(2, 1, 6, 6), randn(2, 1, 6, 6, seed=4)
    matrix, eye = dense(op, (1, 6, 6), 2)[0], torch.eye(36, dtype=torch.float64)
    W = torch.fft.ifft2(torch.fft.fft2(eye.reshape(36, 6, 6)) / spectrum.square()).real.reshape(36, 36)
    W = W * spectrum.square().mean()
    right = matrix.T @ W @ y.flatten(1).T + 0.2 * z.flatten(1).T
    expected = torch.linalg.solve(matrix.T @ W @ matrix + 0.2 * eye, right).T.reshape(z.shape)
    torch.testing.assert_close(firm.data_consistency(op, z, y, 0.2, Gaussian(0.3, spectrum)), expected)


@pytest.mark.parametrize("name", {**DIAGONAL, **OTHERS})
def test_one_level_is_the_equation_of_the_paper_to_the_bit(name):
    op, z, y, _ = problem({**DIAGONAL, **OTHERS}[name], Gaussian(0.1))
    for sigma in (0.1, torch.tensor([0.1, 0.2])):
        assert torch.equal(firm.data_consistency(op, z, y, 0.1, Gaussian(sigma)), firm.data_consistency(op, z, y, 0.1))


@pytest.mark.parametrize("noise", [*COUNTED.values(), Gaussian(0.1 + rand(1, 1, 6, 6))], ids=[*COUNTED, "map"])
@pytest.mark.parametrize("name", ["masks", "blur"])
def test_gradients(name, noise):
    op, z, y, noise = problem({**DIAGONAL, **OTHERS}[name], noise)
    rho = torch.tensor([0.1, 0.4], dtype=torch.float64, requires_grad=True)
    inputs = (z.requires_grad_(), y.requires_grad_(), rho)
    assert gradcheck(lambda z, y, rho: firm.data_consistency(op, z, y, rho, noise), inputs, atol=1e-4, fast_mode=True)


def test_nothing_waits_for_the_device_where_iterations_are_fixed():
    y = rand(2, 1, 6, 6)
    for op in (Identity(), Subsample(2), OTHERS["blur"], valid_blur(gaussian_kernel(3, 0.6))):
        assert not Poisson(0.1).synchronizes(op, y)
        assert not Gaussian(0.1).synchronizes(op, y)
        assert Gaussian(rand(1, 1, 6, 6)).synchronizes(op, y) == (op is OTHERS["blur"])


def test_noise_of_tasks_side_by_side():
    parts = [
        problem(Mask((rand(2, 1, 6, 6) < 0.5).double()), Poisson(0.05)),
        problem(Subsample(2), Gaussian(torch.tensor([0.1, 0.2]))),
        problem(OTHERS["blur"], PoissonGaussian(0.05, 0.1)),
    ]
    op, y = group([(op, y) for op, _, y, _ in parts])
    levels = torch.tensor([0.1, 0.2], dtype=torch.float64)
    noise = grouped([levels if isinstance(noise, Gaussian) else noise for *_, noise in parts], op)
    z, rho = torch.cat([z for _, z, _, _ in parts]), torch.linspace(0.1, 0.2, 6, dtype=torch.float64)
    apart = [
        (firm.data_consistency(o, z, y, r, n), n.level(y), n.relative(o, y, z))
        for (o, z, y, n), r in zip(parts, rho.split(2), strict=True)
    ]
    solved, levels, images = (torch.cat(found) for found in zip(*apart, strict=True))
    torch.testing.assert_close(firm.data_consistency(op, z, y, rho, noise), solved)
    torch.testing.assert_close(noise.level(y), levels)
    torch.testing.assert_close(noise.relative(op, y, z), images)
    plain = grouped([torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4])], op)
    assert torch.equal(plain, torch.tensor([0.1, 0.2, 0.3, 0.4]))  # as without noise models
