"""Operators from functions, solved by conjugate gradients with an implicit backward pass."""

import doctest

import pytest
import torch
from helpers import dense_solve, relative_error
from torch.autograd import gradcheck, gradgradcheck

from firm.operators import data_consistency, dot_test, from_functions, functions, prox_test
from firm.operators.cg import conjugate_gradients


def tomograph(angles=5, m=6, n=16, seed=0):
    """A fixed dense measurement of 4x4 images, as functions."""
    matrix = torch.randn(angles * m, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def A(x):
        return (x.flatten(1) @ matrix.T.to(x.dtype)).unflatten(1, (angles, m))

    def A_adjoint(y):
        return (y.flatten(1) @ matrix.to(y.dtype)).unflatten(1, (1, 4, 4))

    return A, A_adjoint


def complex_measurement(x):
    return torch.fft.fft2(x.cumsum(-1))[..., :2] * (1 + 2j)


OPERATORS = {
    "with adjoint": lambda: from_functions(*tomograph()),
    "by autograd": lambda: from_functions(tomograph()[0], image_shape=(1, 4, 4)),
    "complex, by autograd": lambda: from_functions(complex_measurement, image_shape=(1, 4, 4)),
}
cases = pytest.mark.parametrize("make", OPERATORS.values(), ids=OPERATORS.keys())


def problem(op, batch=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    z, x = torch.randn(2, batch, 1, 4, 4, dtype=dtype, generator=generator)
    return z, op.A(x)


@cases
def test_equals_a_dense_solve(make):
    op = make()
    z, y = problem(op)
    rho = torch.tensor([0.01, 0.1, 1.0], dtype=torch.float64)
    assert relative_error(data_consistency(op, z, y, rho), dense_solve(op, z, y, rho)) < 1e-10


@cases
def test_derivatives_are_exact_twice(make):
    op = make()
    z, y = problem(op, batch=2)
    rho = torch.tensor([0.1, 0.5], dtype=torch.float64)
    inputs = [v.requires_grad_() for v in (z, y, rho)]

    def solve(z, y, rho):
        return data_consistency(op, z, y, rho, check=False)

    assert gradcheck(solve, inputs)
    assert gradgradcheck(solve, inputs)


@cases
def test_public_checks_pass(make):
    op = make()
    assert dot_test(op, (2, 1, 4, 4), dtype=torch.float64) < 1e-12
    assert prox_test(op, (2, 1, 4, 4), dtype=torch.float64) < 1e-9
    assert prox_test(op, (2, 1, 4, 4), rho=0.1) < 1e-4


def test_a_sample_does_not_depend_on_its_batch():
    op = from_functions(*tomograph())
    z, y = problem(op, batch=3)
    y[1] *= 1e6  # takes longer than the others
    y[2], z[2] = 0, 0  # is solved at once
    rho = torch.tensor([0.01, 1e-4, 1.0], dtype=torch.float64)
    together = data_consistency(op, z, y, rho)
    for i in range(3):
        alone = data_consistency(op, z[i : i + 1], y[i : i + 1], rho[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-9, atol=1e-12)
    assert not together[2].any()


def test_stops_as_soon_as_every_sample_has_converged():
    calls = []

    def M(v):
        calls.append(1)
        return torch.tensor([1.0, 2.0, 3.0]) * v

    b = torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    torch.testing.assert_close(conjugate_gradients(M, b), b / torch.tensor([1.0, 2.0, 3.0]))
    assert len(calls) == 3  # as many as distinct eigenvalues


def test_says_when_it_did_not_converge():
    spectrum = torch.logspace(-9, 0, 3000, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="relative residual"):
        conjugate_gradients(lambda v: spectrum * v, torch.ones(1, 3000, dtype=torch.float64))


def test_refuses_a_negative_operator():
    with pytest.raises(ValueError, match="not positive"):
        conjugate_gradients(lambda v: -v, torch.ones(1, 3))


def test_needs_the_adjoint_or_the_shape():
    with pytest.raises(ValueError, match="image_shape"):
        from_functions(lambda x: x)
    with pytest.raises(ValueError, match=r"x has shape \(1, 1, 5, 5\), expected \(1, 1, 4, 4\)"):
        from_functions(lambda x: x, image_shape=(1, 4, 4)).A(torch.zeros(1, 1, 5, 5))


def test_docstring_example():
    assert doctest.testmod(functions).failed == 0
