"""The non-uniform transform against the sum that defines it, and against the Cartesian operator on its grid."""

import math

import pytest
import torch
from helpers import randn, relative_error
from torch.autograd import gradcheck

pytest.importorskip("torchkbnufft")

from firm.operators import MultiCoil, NonUniformFourier, as_real, data_consistency, dot_test

pytestmark = pytest.mark.filterwarnings("default")  # of torch, at functions that torchkbnufft calls
H, W = 14, 16
MAPS = torch.complex(randn(2, H, W), randn(2, H, W, seed=1))
X = torch.complex(randn(2, 1, H, W, seed=2), randn(2, 1, H, W, seed=3))


def places(*size, seed=0):
    u = torch.rand(*size, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (u - 0.5) * torch.tensor([H, W])


def matrix(trajectory):
    rows, columns = torch.arange(H) - H // 2, torch.arange(W) - W // 2
    turns = trajectory[:, :1, None] * rows[:, None] / H + trajectory[:, 1:, None] * columns / W
    return torch.exp(-2j * math.pi * turns).reshape(len(trajectory), H * W) / math.sqrt(H * W)


def test_equals_the_sum_that_defines_it():
    for trajectory in (places(150), places(2, 150)):
        op = NonUniformFourier(trajectory, MAPS)
        each = [matrix(t) for t in (trajectory if trajectory.ndim == 3 else [trajectory] * 2)]
        y = torch.stack([(MAPS * x).flatten(1) @ E.T for x, E in zip(X, each, strict=True)])
        assert relative_error(torch.view_as_real(op.A(X)), torch.view_as_real(y)) < 2e-4


def test_is_the_cartesian_operator_on_its_grid():
    k1, k2 = torch.meshgrid(torch.arange(H) - H // 2, torch.arange(W) - W // 2, indexing="ij")
    grid = NonUniformFourier(torch.stack([k1, k2], -1).reshape(-1, 2).double(), MAPS)
    shift = (-2, -1)
    cartesian = MultiCoil(torch.ones(H, W), torch.fft.ifftshift(MAPS, shift))
    y = torch.fft.fftshift(cartesian.A(torch.fft.ifftshift(X, shift)), shift)
    assert relative_error(torch.view_as_real(grid.A(X)), torch.view_as_real(y.flatten(2))) < 2e-4


@pytest.mark.parametrize(("dtype", "tol"), [(torch.complex64, 1e-5), (torch.complex128, 1e-12)])
def test_the_adjoint_is_one_to_rounding(dtype, tol):
    for maps in (MAPS, MAPS.flip(0)[None].repeat(2, 1, 1, 1)):
        op = NonUniformFourier(places(2, 90), maps)
        assert dot_test(op, (2, 1, H, W), dtype=dtype) < tol
    assert dot_test(as_real(op), (2, 2, H, W), dtype=torch.float32) < 1e-5


def test_the_toeplitz_form_of_the_normal_operator():
    for trajectory in (places(150), places(2, 150)):
        op = NonUniformFourier(trajectory, MAPS)
        found, expected = op.normal(X), op.A_adjoint(op.A(X))
        assert relative_error(torch.view_as_real(found), torch.view_as_real(expected)) < 2e-4


def test_the_solve_equals_a_dense_one_and_is_differentiable():
    trajectory = places(150)
    op = NonUniformFourier(trajectory, MAPS)
    E = matrix(trajectory)
    dense = torch.cat([E * s.flatten() for s in MAPS])  # (C M, H W)
    y, z, rho = op.A(X), X.flip(2), torch.tensor([0.05, 0.4], dtype=torch.float64)
    right = y.flatten(1) @ dense.conj() + rho[:, None] * z.flatten(1)
    left = dense.mH @ dense + rho[:, None, None] * torch.eye(H * W)
    expected = torch.linalg.solve(left, right[..., None]).reshape(X.shape)
    assert relative_error(*(torch.view_as_real(v) for v in (data_consistency(op, z, y, rho), expected))) < 1e-3
    op.cg_tol = 1e-15
    inputs = [v.detach().requires_grad_() for v in (z, y, rho)]
    assert gradcheck(lambda *v: data_consistency(op, *v), inputs, fast_mode=True, atol=1e-4)


def test_weights_of_the_samples_make_a_first_look():
    """On a grid that is twice as dense in one half of k-space, weights of one half undo that."""
    k1, k2 = torch.meshgrid(torch.arange(H) - H // 2, torch.arange(W) - W // 2, indexing="ij")
    grid = torch.stack([k1, k2], -1).reshape(-1, 2).double()
    twice = torch.cat([grid, grid[: len(grid) // 2]])
    weights = torch.ones(len(twice), dtype=torch.float64)
    weights[: len(grid) // 2], weights[len(grid) :] = 0.5, 0.5
    one = torch.ones(1, H, W, dtype=torch.complex128)
    op = NonUniformFourier(twice, one, weights)
    assert relative_error(*(torch.view_as_real(v) for v in (op.gridded(op.A(X)), X))) < 2e-4
    plain = NonUniformFourier(twice, one)
    assert relative_error(*(torch.view_as_real(v) for v in (plain.gridded(op.A(X)), X))) > 0.1


@pytest.mark.parametrize(
    ("trajectory", "maps", "density"),
    [
        (places(9) * 2, MAPS, None),  # outside
        (places(9).T, MAPS, None),
        (places(9), MAPS.real, None),
        (places(9) * torch.nan, MAPS, None),
        (places(9), MAPS, torch.ones(8)),
        (places(9), MAPS, -torch.ones(9)),
    ],
)
def test_what_does_not_fit_is_refused(trajectory, maps, density):
    with pytest.raises(ValueError, match="NonUniformFourier: "):
        NonUniformFourier(trajectory, maps, density)
