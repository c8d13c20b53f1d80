"""Operators from functions, solved by conjugate gradients with an implicit backward pass."""

import doctest

import pytest
import torch
from helpers import dense_solve, relative_error

from firm.operators import data_consistency, from_functions, functions
from firm.operators.base import _conjugate_gradients


def tomograph(angles=5, m=6, n=16, seed=0):
    """A fixed dense measurement of 4x4 images, as functions."""
    matrix = torch.randn(angles * m, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def A(x):
        return (x.flatten(1) @ matrix.T.to(x.dtype)).unflatten(1, (angles, m))

    def A_adjoint(y):
        return (y.flatten(1) @ matrix.to(y.dtype)).unflatten(1, (1, 4, 4))

    return A, A_adjoint


def problem(op, batch=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    z, x = torch.randn(2, batch, 1, 4, 4, dtype=dtype, generator=generator)
    return z, op.A(x)


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


def conjugate_gradients(spectrum, b, start=None, tol=None, iterations=500):
    """Solve with the diagonal matrix `spectrum`, and say how often it was applied."""
    calls = []
    op = from_functions(lambda v: calls.append(1) or spectrum * v, lambda v: v, cg_tol=tol, cg_iterations=iterations)
    return _conjugate_gradients(op, 0.0, b, start), len(calls)


def test_stops_as_soon_as_every_sample_has_converged():
    spectrum, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    x, calls = conjugate_gradients(spectrum, b)
    torch.testing.assert_close(x, b / spectrum)
    assert calls == 3  # as many as distinct eigenvalues


def test_says_when_it_did_not_converge():
    op = from_functions(*tomograph(), cg_iterations=2, cg_tol=1e-8)
    with pytest.warns(RuntimeWarning, match=r"relative .* after 2 iterations .*wanted 1e-08.*cg_iterations.*cg_tol"):
        data_consistency(op, *problem(op), 0.01)


@pytest.mark.parametrize("factor", [-1.0, float("nan")])
def test_an_operator_that_is_not_positive_is_refused(factor):
    with pytest.raises(ValueError, match=r"not positive.*not the adjoint of A, or A returns NaN"):
        conjugate_gradients(factor, torch.ones(1, 3))


def test_docstring_example():
    assert doctest.testmod(functions).failed == 0


class Counted:
    """A plain class with limits of its own, which counts its calls."""

    cg_tol: float | None = None
    cg_iterations = 500

    def __init__(self):
        self._A, self._A_adjoint = tomograph()
        self.calls, self.adjoints = 0, 0

    def A(self, x):
        self.calls += 1
        return self._A(x)

    def A_adjoint(self, y):
        self.adjoints += 1
        return self._A_adjoint(y)

    def solve(self, z, y, rho=0.01):
        self.calls, self.adjoints = 0, 0
        return data_consistency(self, z, y, rho)


def test_starts_from_z():
    op = Counted()
    z, y = problem(op)
    cold = op.solve(z, y)
    assert op.adjoints == op.calls + 1  # one each per iteration and for the start, and A'y
    iterations = op.calls - 1
    assert iterations > 5
    warm = op.solve(cold, op.A(cold))  # z is already the solution
    assert op.calls == 1
    assert torch.equal(warm, cold)
    op.cg_tol = 1e-3
    near = op.solve(cold + 1e-2 * z, op.A(cold))
    assert 1 <= op.calls - 1 < iterations / 2
    torch.testing.assert_close(near, cold, atol=2e-2, rtol=0)


SPECTRUM = torch.logspace(-3, 0, 200, dtype=torch.float64)


def test_the_goal_is_relative_to_the_right_hand_side_not_to_the_start():
    b = torch.ones(2, 200, dtype=torch.float64)
    start = torch.tensor([[1e4], [1e-4]], dtype=torch.float64) * b
    x, _ = conjugate_gradients(SPECTRUM, b, start, 1e-4)
    residual = (SPECTRUM * x - b).norm(dim=1) / b.norm(dim=1)
    assert float(residual.min()) > 1e-6
    assert float(residual.max()) < 1e-4


def test_a_looser_tolerance_takes_fewer_calls():
    b = torch.ones(1, 200, dtype=torch.float64)
    found = [conjugate_gradients(SPECTRUM, b, tol=tol) for tol in (1e-2, 1e-5, None)]
    loose, close, exact = (relative_error(x, b / SPECTRUM) for x, _ in found)
    assert 4 * found[0][1] < 2 * found[1][1] < found[2][1] < 500
    assert loose > 100 * close > 1000 * exact


def test_zero_tolerance_makes_all_iterations_also_backwards():
    op = Counted()
    op.cg_tol, op.cg_iterations = 0, 40
    z, y = problem(op)
    z.requires_grad_()
    x = op.solve(z, y)
    assert (op.calls, op.adjoints) == (41, 42)
    x.sum().backward()
    assert (op.calls, op.adjoints) == (81, 82)  # from zero
    exact = from_functions(*tomograph())
    assert relative_error(x.detach(), dense_solve(exact, z.detach(), y, 0.01)) < 1e-9
    expected = data_consistency(exact, z, y, 0.01)
    torch.testing.assert_close(z.grad, torch.autograd.grad(expected.sum(), z)[0])


def test_zero_and_broken_samples():
    op = Counted()
    z, y = problem(op)
    z[0], y[1] = -op.A_adjoint(y)[0], float("nan")  # b = 0 in the first, although z is not
    for tol in (None, 0):
        op.cg_tol, op.cg_iterations = tol, 60
        x = op.solve(z, y, 1.0)
        assert not x[0].any()
        assert x[1].isnan().any()
        alone = data_consistency(from_functions(*tomograph()), z[2:], y[2:], 1.0)
        torch.testing.assert_close(x[2:], alone)


def test_iterations_past_convergence_stay_finite():
    b = torch.tensor([[1.0, 2.0, 3.0], [1e-22, 1e-22, 1e-22]])  # whose squares underflow
    x, _ = conjugate_gradients(1e-3 + torch.tensor([1e-4, 0, 0]), b, tol=0, iterations=200)
    torch.testing.assert_close(x[0], b[0] / torch.tensor([1.1e-3, 1e-3, 1e-3]))
    assert x.isfinite().all()


@pytest.mark.parametrize(("tol", "iterations"), [(-1.0, 5), (float("nan"), 5), (1e-3, 0)])
def test_wrong_limits(tol, iterations):
    op = from_functions(*tomograph(), cg_tol=tol, cg_iterations=iterations)
    with pytest.raises(ValueError, match="cg_tol must be at least 0 and cg_iterations at least 1"):
        data_consistency(op, *problem(op), 0.1)
