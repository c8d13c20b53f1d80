"""The norm of A, and operators that are far from a norm of 1."""

import pytest
import torch
from helpers import Shrink, rand

import firm
from firm.noise import Gaussian, PoissonGaussian
from firm.operators import (
    Blur,
    Downsample,
    Fourier,
    Identity,
    Mask,
    Subsample,
    dot_test,
    from_functions,
    gaussian_kernel,
    operator_norm,
    prox_test,
    random_mask,
)
from firm.operators.scale import Scaled
from firm.tasks import BaseTask, Parameter, Rows


def matrix(rows, columns, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) / columns**0.5


def projections(m):
    return from_functions(lambda x: x.flatten(1) @ m.T, image_shape=(1, 8, 8))


@pytest.mark.parametrize("factor", [1.0, 55.0, 0.02])
def test_it_is_the_largest_singular_value(factor):
    m = factor * matrix(40, 64)
    found, exact = operator_norm(projections(m), (1, 1, 8, 8), iterations=60), float(torch.linalg.matrix_norm(m, 2))
    assert found == pytest.approx(exact, rel=1e-3)
    assert 0.8 * exact < operator_norm(projections(m), (1, 1, 8, 8)) <= exact * (1 + 1e-6)


def test_operators_of_norm_one():
    mask = random_mask((16, 16), 0.7, torch.Generator().manual_seed(0))
    assert operator_norm(Mask(mask), (2, 3, 16, 16)) == pytest.approx(1)
    assert 0.6 < operator_norm(Blur(gaussian_kernel(9, 1.5)), (1, 3, 32, 32)) <= 1 + 1e-6
    assert operator_norm(projections(torch.zeros(40, 64)), (1, 1, 8, 8)) == 0


KNOWN = {
    "identity": Identity(),
    "mask": Mask(0.3 + rand(3, 8, 8)),
    "masks": Mask(rand(2, 1, 8, 8)),
    "blur": Blur(rand(3, 5)),
    "fourier": Fourier(rand(8, 8)),
    "fourier of complex images": Fourier(rand(8, 8), complex_images=True),
    "subsample": Subsample(2),
    "downsample": Downsample(2, rand(3, 3)),
    "valid blur": Blur(rand(3, 3), boundary="valid"),  # found by iterations
}


@pytest.mark.parametrize("op", KNOWN.values(), ids=KNOWN)
def test_operators_know_their_norm(op):
    dtype = torch.complex64 if getattr(op, "complex_images", False) else torch.float32
    many = 2 if op is KNOWN["masks"] else 1
    basis = torch.eye(192, dtype=dtype).reshape(192, 1, 3, 8, 8).expand(-1, many, -1, -1, -1)
    columns = torch.stack([op.A(x) for x in basis])  # of the dense matrix, for each sample
    if columns.is_complex() and not dtype.is_complex:
        columns = torch.view_as_real(columns)
    exact = max(float(torch.linalg.matrix_norm(columns[:, b].flatten(1).T, 2)) for b in range(many))
    assert operator_norm(op, torch.zeros(many, 3, 8, 8, dtype=dtype), iterations=200) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("factor", [0.01, 1.0, 55.0])
@pytest.mark.parametrize("kind", ["mask", "own", "blur"])
def test_the_units_of_a_do_not_matter(kind, factor):
    """A x = y in other units is the same problem: with a closed form, by conjugate gradients, in Fourier space."""
    model = firm.Firm(Shrink(), firm.Solver(K=3))
    made = {
        "mask": lambda c: Mask(c * (0.2 + rand(8, 8))),
        "own": lambda c: projections(c * matrix(40, 64)),
        "blur": lambda c: Blur(c * gaussian_kernel(5, 1.0)),
    }[kind]
    x = 2 * rand(2, 1, 8, 8) - 1
    c = 1 / operator_norm(made(1.0), x)  # a norm of 1
    plain = firm.restore(model, made(c), made(c).A(x), samples=2, sigma=0.1)
    other = firm.restore(model, made(factor * c), factor * made(c).A(x), samples=2, sigma=0.1 * factor)
    torch.testing.assert_close(other.samples, plain.samples, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(other.residual, plain.residual, rtol=1e-3, atol=1e-3)


def test_the_units_of_a_noise_model_do_not_matter():
    model, x, c = firm.Firm(Shrink(), firm.Solver(K=2)), 2 * rand(2, 1, 8, 8) - 1, 40.0
    std = 0.05 + 0.1 * rand(8, 8)
    for noise in (lambda c: Gaussian(c * std), lambda c: PoissonGaussian(0.02 * c, 0.05 * c)):
        results = [
            firm.restore(model, op, op.A(x), seed=1, sigma=noise(scale)).image
            for op, scale in ((Mask(torch.ones(8, 8)), 1.0), (Mask(c * torch.ones(8, 8)), c))
        ]
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_each_image_of_a_batch_has_its_own_scale():
    """Results do not depend on what else is in the batch."""
    model, x = firm.Firm(Shrink(), firm.Solver(K=2)), rand(2, 1, 8, 8)
    weights = torch.stack([torch.ones(1, 8, 8), torch.full((1, 8, 8), 30.0)])
    x_0 = rand(2, 1, 8, 8)
    both = firm.sample(model, Mask(weights), weights * x, 1, x_0=x_0)
    for i in range(2):
        alone = firm.sample(model, Mask(weights[i]), (weights * x)[i : i + 1], 1, x_0=x_0[i : i + 1])
        torch.testing.assert_close(both[i : i + 1], alone)


def test_a_scaled_operator_is_the_operator_times_c():
    c, x = torch.tensor([0.5, 4.0]), 2 * rand(2, 1, 8, 8) - 1
    for op in (Mask(0.2 + rand(8, 8)), Blur(gaussian_kernel(5, 1.0)), projections(matrix(40, 64))):
        scaled = Scaled(op, c)
        assert dot_test(scaled, (2, 1, 8, 8)) < 1e-5
        assert prox_test(scaled, (2, 1, 8, 8), rho=0.1) < 1e-4
        torch.testing.assert_close(scaled.A(x)[1], 4 * op.A(x)[1])


def test_training_scales_as_restoring_does():
    class Strong(BaseTask):
        factor = Parameter(float, "what the mask weighs", 40.0)

        def build(self, values):
            return Mask(values["factor"] * torch.ones(8, 8))

    task, x = Strong(8, sigma=4.0), 2 * rand(3, 1, 8, 8) - 1
    op, y, sigma = task.draw(x, Rows(3, 0, 3, torch.Generator().manual_seed(0)))
    assert operator_norm(op, x) == pytest.approx(1)
    torch.testing.assert_close(sigma, torch.full((3,), 0.1))
    assert (y - x).std().item() == pytest.approx(0.1, rel=0.1)
